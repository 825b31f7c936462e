package ring

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/fuzz/ringtest"
)

// tested is a Queue as package ringtest wants it: this is all that a test of your own needs.
type tested struct{ *Queue }

func (t tested) Alloc(size int) (uint64, uint32, error) {
	off, id, err := t.Take(size)
	return uint64(off), id, err
}

func (t tested) Free(ids []uint32) []uint32 {
	returned := t.Return(func(id uint32) bool { return slices.Contains(ids, id) })
	if t.Bug == DoubleReturn && len(ids) > 0 && len(returned) == 0 && !slices.Contains(t.ids(), ids[0]) {
		return ids[:1]
	}
	if t.Bug == EmptyPanics && len(t.slots) == 0 && len(returned) == 0 {
		_ = t.slots[0]
	}
	return returned
}

func (t tested) Live() map[uint32]uint64 {
	live := map[uint32]uint64{}
	for _, s := range t.slots {
		live[s.id] = uint64(s.off)
	}
	return live
}

func (t tested) State() ringtest.State {
	s := ringtest.State{End: uint64(t.tail), IDStart: t.next, IDEnd: t.next}
	if len(t.slots) > 0 {
		s.Start, s.IDStart = uint64(t.slots[0].off), t.slots[0].id
	}
	if t.Bug == WindowBehind && s.Start > 0 && s.IDStart > 0 {
		s.IDStart--
	}
	return s
}

func (t tested) Bytes() []byte    { return t.mem }
func (t tested) Clear()           { t.Reset() }
func (t tested) OnStore(f func()) { t.stored = f }

func (t tested) ids() (ids []uint32) {
	for _, s := range t.slots {
		ids = append(ids, s.id)
	}
	return ids
}

func newQueue(bug Bug, align int) ringtest.New {
	return func(size int, firstID uint32) ringtest.Ring {
		q := NewQueue(make([]byte, size), align, firstID)
		q.Bug = bug
		return tested{q}
	}
}

// testedBestFit is a BestFit as package ringtest wants it.
type testedBestFit struct{ *BestFit }

func newBestFit(size int, firstID uint32) ringtest.Ring {
	return testedBestFit{NewBestFit(make([]byte, size), firstID)}
}

func (t testedBestFit) Alloc(size int) (uint64, uint32, error) {
	off, id, err := t.Take(size)
	return uint64(off), id, err
}

func (t testedBestFit) Free(ids []uint32) (freed []uint32) {
	for _, id := range ids {
		if t.Return(id) {
			freed = append(freed, id)
		}
	}
	return freed
}

func (t testedBestFit) Live() map[uint32]uint64 {
	live := map[uint32]uint64{}
	for _, s := range t.blocks {
		live[s.id] = uint64(s.off)
	}
	return live
}

func (t testedBestFit) State() ringtest.State {
	s := ringtest.State{IDStart: t.next, IDEnd: t.next}
	for _, b := range t.blocks {
		if age := (t.next - b.id) % (1 << 31); age > (t.next-s.IDStart)%(1<<31) {
			s.IDStart = b.id
		}
	}
	return s
}

func (t testedBestFit) Bytes() []byte { return t.mem }

// Correct allocators raise no alarm, wherever they place what they hand out.
func TestCorrectAllocators(t *testing.T) {
	for name, c := range map[string]struct {
		new     ringtest.New
		options ringtest.Options
	}{
		"a queue without gaps":     {newQueue(NoBug, 1), ringtest.Options{FIFO: true}},
		"a queue aligned to 64":    {newQueue(NoBug, 64), ringtest.Options{FIFO: true}},
		"best fit, with gaps":      {newBestFit, ringtest.Options{StaleAtOnce: true}},
		"a queue, freed as it may": {newQueue(NoBug, 8), ringtest.Options{}},
	} {
		t.Run(name, func(t *testing.T) {
			ringtest.Check(t, c.new, c.options)
			c.options.Depth = 5
			ringtest.Exhaust(t, c.new, c.options)
			ringtest.Crash(t, c.new, c.options, nil)
			rapid.Check(t, ringtest.Machine(c.new, c.options))
		})
	}
}

func FuzzQueue(f *testing.F) {
	ringtest.Fuzz(f, newQueue(NoBug, 1), ringtest.Options{FIFO: true})
}

// found is the invariant that each bug breaks, in the order of the constants. Where two break at the
// same place, either will do.
var found = map[Bug]string{
	LimitOffByThree: "no-overlap", LimitOffByOne: "no-overlap", SizeWithoutHeader: "headers", SizeOfTheLast: "headers", IDNotWrapped: "id-window",
	IDsRestart: "ids-unique", PaddingForgotten: "drain", StartNotReset: "drain", NewestFirst: "fifo", DoubleReturn: "live",
	EmptyBeginsBehind: "stale-handle", RoundDown: "no-overlap", LostAtExactFit: "live", ClearLeavesOne: "live", Overflow: "bounds",
	NegativeSize: "bounds", RefusalMovesTail: "refusal", ScrubTooFar: "headers", LastIsKept: "fifo", WindowBehind: "id-window",
	EmptyPanics: "panic",
}

// TestBugs finds every bug by what holds for any ring, and prints how.
func TestBugs(t *testing.T) {
	var table strings.Builder
	for bug := LimitOffByThree; bug < Blink; bug++ {
		t.Run(bug.String(), func(t *testing.T) {
			align := 1
			if bug == RoundDown {
				align = 16
			}
			begin := time.Now()
			failure, operations, err := ringtest.Find(newQueue(bug, align), ringtest.Options{FIFO: true})
			if err != nil || failure == nil {
				t.Fatalf("not found in %d operations, %v", operations, err)
			}
			if failure.Invariant != found[bug] {
				t.Errorf("%s, want %s: %v", failure.Invariant, found[bug], failure)
			}
			if len(failure.Ops) > 12 {
				t.Errorf("%d operations are left of %d: %v", len(failure.Ops), failure.Found, failure)
			}
			fmt.Fprintf(&table, "%-26s %-13s %5d operations, %4d ms\n", bug, failure.Invariant, operations, time.Since(begin).Milliseconds())
			for _, op := range failure.Ops {
				fmt.Fprintf(&table, "    %s\n", op.Line())
			}
		})
	}
	t.Logf("what was found, by which invariant, after how many operations, and what is left of the sequence:\n%s", table.String())
}

// recorder is a test that may fail.
type recorder struct{ testing.TB }

func (r *recorder) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// TestCrashBug finds what is right again when the operation ends.
func TestCrashBug(t *testing.T) {
	ringtest.Check(t, newQueue(Blink, 1), ringtest.Options{FIFO: true})
	defer func() {
		report, _ := recover().(string)
		if !strings.Contains(report, "crash-reader") {
			t.Fatalf("not found: %q", report)
		}
		t.Log(report)
	}()
	ringtest.Crash(&recorder{t}, newQueue(Blink, 1), ringtest.Options{FIFO: true}, nil)
}
