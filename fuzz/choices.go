package fuzz

import (
	"encoding/binary"
	"math/rand/v2"
)

// Choices are the decisions of a generator. The same choices give the same sequence, whatever
// they come from: bytes of Go's fuzzer, a seed, or rapid (ringtest.Machine and others).
type Choices struct {
	next func(n int) int
	more func() bool
}

// NewChoices returns choices that next makes: a number of at least 0 and below n. more, if not
// nil, reports whether a generator should go on.
func NewChoices(next func(n int) int, more func() bool) *Choices {
	if more == nil {
		more = func() bool { return true }
	}
	return &Choices{next, more}
}

// FromSeed returns endless choices.
func FromSeed(seed uint64) *Choices {
	return NewChoices(rand.New(rand.NewPCG(seed, 0x72696e67)).IntN, nil)
}

// FromBytes returns choices that data contains, and then 0. Changing one byte changes few
// choices, as Go's fuzzer wants it.
func FromBytes(data []byte) *Choices {
	next := func(n int) int {
		width := 1
		if n > 1<<8 {
			width = 4
		}
		var word [4]byte
		used := copy(word[:width], data)
		data = data[used:]
		return int(uint64(binary.LittleEndian.Uint32(word[:])) % uint64(n))
	}
	return NewChoices(next, func() bool { return len(data) > 0 })
}

// Bytes returns the data from which [FromBytes] makes the choices that a generator takes from a
// seed: the input of Go's fuzzer for that sequence.
func Bytes(generate Generator, seed uint64, length int) []byte {
	var data []byte
	from := FromSeed(seed)
	generate(NewChoices(func(n int) int {
		v := from.Int(n)
		if n > 1<<8 {
			data = binary.LittleEndian.AppendUint32(data, uint32(v))
		} else {
			data = append(data, byte(v))
		}
		return v
	}, nil), length)
	return data
}

// Int returns a number of at least 0 and below n, which is at least 1.
func (c *Choices) Int(n int) int {
	if n <= 1 {
		return 0
	}
	return c.next(n)
}

// Percent reports true in p of 100 cases.
func (c *Choices) Percent(p int) bool { return c.Int(100) >= 100-p }

// More reports whether a generator should go on.
func (c *Choices) More() bool { return c.more() }

// Pick returns one of the values.
func Pick[T any](c *Choices, values ...T) T { return values[c.Int(len(values))] }

// Generator makes a sequence of at most length operations. It stops early when the choices end.
type Generator func(c *Choices, length int) []Op
