package ringtest

import (
	"encoding/binary"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/internal/draw"
)

// Check performs random sequences and fails the test for the first that breaks an invariant. It
// prints that sequence minimized, with the seed and the command that repeat it.
func Check(t testing.TB, n New, o Options) {
	t.Helper()
	failure, done, err := Find(n, o)
	if err != nil {
		t.Fatalf("ringtest: %v", err)
	}
	if failure != nil {
		failure.Repeat = repeat(t, failure.Seed)
		t.Fatalf("ringtest: after %d operations:\n%v", done, failure)
	}
	t.Logf("ringtest: %d operations", done)
}

// Find is [Check] for those who want to go on with what it finds, such as a test that plants
// defects: it returns the failure, or nil, and the number of operations that it performed until then,
// without those of minimizing. The error is that of the options, or of a New that made no ring.
func Find(n New, o Options) (failure *fuzz.Failure, done int, err error) {
	p, err := newPlan(n, o)
	if err != nil {
		return nil, 0, err
	}
	s, err := p.search(50_000)
	if err != nil {
		return nil, 0, err
	}
	failure, done = fuzz.Find(s, p.generator(), p.run)
	if p.rings == 0 && failure == nil {
		return nil, done, errNoRing
	}
	return failure, done, nil
}

var errNoRing = errors.New("no ring was made: New returned nil for every size")

// Replay performs operations of the agent's protocol: those that a failure printed, or that you
// wrote.
func Replay(t testing.TB, n New, o Options, lines string) {
	t.Helper()
	ops, err := fuzz.Parse(lines)
	if err != nil {
		t.Fatalf("ringtest: %v", err)
	}
	p := mustPlan(t, n, o)
	if f := p.run(ops); f != nil {
		f.Found = len(ops)
		t.Fatalf("ringtest: %s", describe(f))
	}
	if p.rings == 0 {
		t.Fatalf("ringtest: no ring was made: lines have to begin with ring.new")
	}
}

// Fuzz lets Go's fuzzer choose the operations. It begins with sequences that reach the borders.
func Fuzz(f *testing.F, n New, o Options) {
	f.Helper()
	p := mustPlan(f, n, o)
	for seed := range uint64(8) {
		f.Add(Bytes(p.Options, seed, 60))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		ops := p.generator()(fuzz.FromBytes(data), 400)
		if failure := p.run(ops); failure != nil {
			t.Fatalf("ringtest: %s", describe(fuzz.Shrink(ops, failure, p.run)))
		}
	})
}

// Machine returns a property for rapid.Check, or for rapid.MakeFuzz: rapid chooses the operations
// and minimizes.
func Machine(n New, o Options) func(*rapid.T) {
	p, err := newPlan(n, o)
	return func(t *rapid.T) {
		if err != nil {
			t.Fatalf("ringtest: %v", err)
		}
		length := p.Length
		if length == 0 {
			length = 100
		}
		ops := p.generator()(draw.Choices(t), rapid.IntRange(1, length).Draw(t, "operations"))
		if f := p.run(ops); f != nil {
			f.Found = len(ops)
			t.Fatalf("ringtest: %s", describe(f))
		}
	}
}

// Bytes returns the input of a target of [Fuzz] with the same options for the sequence that a seed
// makes, for a corpus.
func Bytes(o Options, seed uint64, length int) []byte {
	var out []byte
	from := fuzz.FromSeed(seed)
	record := fuzz.NewChoices(func(n int) int {
		v := from.Int(n)
		if n > 1<<8 {
			out = binary.LittleEndian.AppendUint32(out, uint32(v))
		} else {
			out = append(out, byte(v))
		}
		return v
	}, nil)
	p := plan{Options: o}
	p.FIFO = o.FIFO || o.Placement != ""
	p.generator()(record, length)
	return out
}
