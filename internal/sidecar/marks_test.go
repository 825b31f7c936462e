package sidecar

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// withSlots returns a sidecar in memory of this process with any number of slots.
func withSlots(slots int) *File {
	o := Options{Policy: Pool, Slots: slots}
	return newFile(mapping{path: "copy", mem: make([]byte, o.bytes()), opt: o})
}

// Each mark is found, and changing one leaves the others, for any number of slots.
func TestMarks(t *testing.T) {
	for _, slots := range []int{0, 1, 7, 8, 9, 16, 17, 64, 65, 100, maxSlots} {
		t.Run(fmt.Sprintf("%d slots", slots), func(t *testing.T) {
			f := withSlots(slots)
			rng := rand.New(rand.NewPCG(1, uint64(slots)))
			want := map[int]bool{}
			for range min(200, 4*slots) {
				i := rng.IntN(slots)
				if want[i] {
					f.unmark(i)
					delete(want, i)
				} else {
					f.mark(i)
					want[i] = true
				}
				mark, _ := f.loadMark(i)
				require.Equal(t, want[i], mark == 1)
				if slots > 100 && rng.IntN(20) > 0 {
					continue // seldom: it takes a while
				}
				found := map[int]bool{}
				for i := f.marked(0); i < slots; i = f.marked(i + 1) {
					found[i] = true
				}
				require.Equal(t, want, found)
			}
			require.Equal(t, slots, f.marked(slots))
		})
	}
}

// A writer looks at no slot that is not there, whatever a reader stores in the marks and in its slot.
func TestHostileMarks(t *testing.T) {
	for _, slots := range []int{0, 1, 8, 13} {
		f := withSlots(slots)
		for i := range marksSize {
			f.mem[offMarks+i] = byte(0x80 | i)
		}
		for i := range slots {
			b := f.slot(i)
			for at := range b {
				b[at] = 0xff
			}
		}
		held, dead := f.Held()
		require.LessOrEqual(t, len(held), 1, "all places name the same id")
		require.Zero(t, dead)
		require.Zero(t, f.Reap(), "private memory has no locks")
		taken, _, found := f.LookAtSlots()
		require.Equal(t, slots, taken)
		require.GreaterOrEqual(t, len(found), slots)
	}
}

// With no reader, or readers that name nothing, looking for what is held allocates nothing.
func TestHeldByNobodyDoesNotAllocate(t *testing.T) {
	f, dir := made(t)
	require.Zero(t, testing.AllocsPerRun(100, func() { f.Held() }))
	a, err := open(t, dir).TakeSlot(1)
	require.NoError(t, err)
	require.Zero(t, testing.AllocsPerRun(100, func() { f.Held() }))
	require.NoError(t, a.Close())
}

// A reader that died without a hold is found by Reap, and not by Held, which does not ask for it.
func TestReap(t *testing.T) {
	f, dir := made(t)
	alive, err := open(t, dir).TakeSlot(1)
	require.NoError(t, err)
	c, err := Open(dir, "s")
	require.NoError(t, err)
	_, err = c.TakeSlot(1)
	require.NoError(t, err)
	require.NoError(t, c.Close(), "ends as a process does")
	_, dead := f.Held()
	require.Zero(t, dead)
	require.Equal(t, 2, takenSlots(f))
	require.Equal(t, 1, f.Reap())
	require.Equal(t, 1, takenSlots(f))
	require.Zero(t, f.Reap())
	require.NoError(t, alive.Close())
}

// A hold of one chunk does not concern those who ask for another, and the dead reader's is found by those who
// ask for it.
func TestHeldOf(t *testing.T) {
	f, dir := made(t)
	alive, err := open(t, dir).TakeSlot(1)
	require.NoError(t, err)
	_, ok := alive.Hold(3)
	require.True(t, ok)
	c, err := Open(dir, "s")
	require.NoError(t, err)
	slot, err := c.TakeSlot(1)
	require.NoError(t, err)
	_, ok = slot.Hold(4)
	require.True(t, ok)
	require.NoError(t, c.Close(), "ends as a process does")

	require.Zero(t, testing.AllocsPerRun(100, func() {
		held, dead := f.HeldOf([]uint32{5, 6})
		require.Empty(t, held)
		require.Zero(t, dead)
	}), "the kernel is not asked, and nothing allocated")
	held, dead := f.HeldOf([]uint32{9, 3})
	require.Equal(t, map[uint32]struct{}{3: {}}, held)
	require.Zero(t, dead, "the kernel is not asked for the lock of another slot")
	many := make([]uint32, fewIDs+1)
	many[fewIDs] = 4
	held, dead = f.HeldOf(many)
	require.NotContains(t, held, uint32(4))
	require.Equal(t, 1, dead)
	held, dead = f.HeldOf([]uint32{4})
	require.Empty(t, held)
	require.Zero(t, dead)
	require.NoError(t, alive.Close())
}
