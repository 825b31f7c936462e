package kv

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"strconv"
)

// sipKey is the key with which a CPython process hashes texts.
type sipKey struct{ k0, k1 uint64 }

// pythonSeed returns the key that CPython derives from a PYTHONHASHSEED (Python/bootstrap_hash.c): all zeros for 0,
// else the bytes of a linear congruential generator.
func pythonSeed(seed string) (sipKey, error) {
	n, err := strconv.ParseUint(seed, 10, 32)
	if err != nil || seed[0] == '+' {
		return sipKey{}, fmt.Errorf(
			"scheme: %s needs a PYTHONHASHSEED of 0 to %d, not %q: "+
				"set it to the same number for all engines, and give it as Seed",
			Builtin, uint32(1<<32-1), seed)
	}
	if n == 0 {
		return sipKey{}, nil
	}
	var b [16]byte
	x := uint32(n)
	for i := range b {
		x = x*214013 + 2531011
		b[i] = byte(x >> 16)
	}
	return sipKey{binary.LittleEndian.Uint64(b[:]), binary.LittleEndian.Uint64(b[8:])}, nil
}

// hashText returns CPython's hash of an ASCII text that is not empty: SipHash-1-3, since 3.11. The packages for
// SipHash compute the form 2-4 only.
func (k sipKey) hashText(text string) int64 {
	v0, v1 := k.k0^0x736f6d6570736575, k.k1^0x646f72616e646f6d
	v2, v3 := k.k0^0x6c7967656e657261, k.k1^0x7465646279746573
	round := func() {
		v0 += v1
		v1 = bits.RotateLeft64(v1, 13) ^ v0
		v0 = bits.RotateLeft64(v0, 32)
		v2 += v3
		v3 = bits.RotateLeft64(v3, 16) ^ v2
		v0 += v3
		v3 = bits.RotateLeft64(v3, 21) ^ v0
		v2 += v1
		v1 = bits.RotateLeft64(v1, 17) ^ v2
		v2 = bits.RotateLeft64(v2, 32)
	}
	last := uint64(len(text)) << 56
	b := []byte(text)
	for ; len(b) >= 8; b = b[8:] {
		m := binary.LittleEndian.Uint64(b)
		v3 ^= m
		round()
		v0 ^= m
	}
	for i, x := range b {
		last |= uint64(x) << (8 * i)
	}
	v3 ^= last
	round()
	v0 ^= last
	v2 ^= 0xff
	for range 3 {
		round()
	}
	return notMinusOne(int64(v0 ^ v1 ^ v2 ^ v3))
}

// hashChunk returns CPython's hash of the tuple (previous, tokens, ()).
func hashChunk(previous int64, tokens []int64) int64 {
	const empty = 5740354900026072187 // hash(())
	t := hashTuple(tokens)            // the hashes of what is in them are the tokens themselves: they have 32 bits
	return hashTuple([]int64{hashInt(previous), t, empty})
}

// hashInt returns CPython's hash of an int: its value modulo the prime 2^61-1, with its sign.
func hashInt(n int64) int64 {
	return notMinusOne(n % (1<<61 - 1))
}

// hashTuple returns CPython's hash of a tuple (Objects/tupleobject.c), from the hashes of what is in it.
func hashTuple(lanes []int64) int64 {
	const p1, p2, p5 = 11400714785074694791, 14029467366897019727, 2870177450012600261
	acc := uint64(p5)
	for _, lane := range lanes {
		acc += uint64(lane) * p2
		acc = bits.RotateLeft64(acc, 31) * p1
	}
	acc += uint64(len(lanes)) ^ (p5 ^ 3527539)
	if acc == 1<<64-1 {
		return 1546275796
	}
	return int64(acc)
}

// notMinusOne returns a hash as CPython does, for which -1 is an error.
func notMinusOne(h int64) int64 {
	if h == -1 {
		return -2
	}
	return h
}
