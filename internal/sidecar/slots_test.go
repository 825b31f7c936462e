package sidecar

import (
	"context"
	"encoding/binary"
	"math"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/shmring"
)

func TestSlotsAreTakenAndGivenBack(t *testing.T) {
	t.Run("file", func(t *testing.T) {
		f, dir := made(t)
		takeAll(t, f, func() *File { return open(t, dir) })
	})
	t.Run("private", func(t *testing.T) {
		f, err := Private(options())
		require.NoError(t, err)
		takeAll(t, f, func() *File { return f })
	})
}

// takeAll takes all four slots of what open opens.
func takeAll(t *testing.T, writer *File, open func() *File) {
	t.Helper()
	var slots []*Slot
	for i := range 4 {
		slot, err := open().TakeSlot(i)
		require.NoError(t, err)
		slots = append(slots, slot)
		require.Equal(t, i+1, takenSlots(writer))
	}
	_, err := open().TakeSlot(9)
	require.ErrorIs(t, err, ErrBusy)
	require.NoError(t, slots[2].Close())
	require.Equal(t, 3, takenSlots(writer))
	slots[2], err = open().TakeSlot(9)
	require.NoError(t, err)
	for _, slot := range slots {
		require.NoError(t, slot.Close())
	}
	require.Zero(t, takenSlots(writer))
	held, dead := writer.Held()
	require.Empty(t, held)
	require.Zero(t, dead)
}

func TestHolds(t *testing.T) {
	f, dir := made(t)
	a, err := open(t, dir).TakeSlot(1)
	require.NoError(t, err)
	b, err := open(t, dir).TakeSlot(2)
	require.NoError(t, err)
	held := func() map[uint32]struct{} {
		ids, dead := f.Held()
		require.Zero(t, dead)
		return ids
	}
	set := func(ids ...uint32) map[uint32]struct{} {
		m := map[uint32]struct{}{}
		for _, id := range ids {
			m[id] = struct{}{}
		}
		return m
	}
	require.Empty(t, held())
	p0, ok := a.Hold(0)
	require.True(t, ok)
	p1, ok := a.Hold(shmring.IDLimit - 1)
	require.True(t, ok)
	q0, ok := b.Hold(0)
	require.True(t, ok)
	require.Equal(t, set(0, shmring.IDLimit-1), held())
	a.Release(p0)
	require.Equal(t, set(0, shmring.IDLimit-1), held(), "the other reader holds it too")
	b.Release(q0)
	require.Equal(t, set(shmring.IDLimit-1), held())
	again, ok := a.Hold(5)
	require.True(t, ok)
	require.Equal(t, p0, again, "places are used again")
	a.Release(p1)
	a.Release(again)
	require.Empty(t, held())

	for i := range uint32(maxHolds) {
		_, ok := a.Hold(i)
		require.True(t, ok)
	}
	_, ok = a.Hold(9999)
	require.False(t, ok)
	require.Len(t, held(), maxHolds)
	// What a reader writes there can't lead the writer out of the slot.
	binary.LittleEndian.PutUint32(a.b[slotTop:], math.MaxUint32)
	require.Len(t, held(), maxHolds)
	require.NoError(t, a.Close())
	require.Empty(t, held())
	require.NoError(t, b.Close())
}

func TestSlotOfADeadReaderIsFree(t *testing.T) {
	f, dir := made(t)
	die := func() { // a reader that ends without a word
		c, err := Open(dir, "s")
		require.NoError(t, err)
		slot, err := c.TakeSlot(1)
		require.NoError(t, err)
		_, ok := slot.Hold(3)
		require.True(t, ok)
		ids, _ := f.Held()
		require.Contains(t, ids, uint32(3))
		require.NoError(t, c.Close())
	}
	die()
	require.Equal(t, 1, takenSlots(f))
	ids, dead := f.Held()
	require.Empty(t, ids)
	require.Equal(t, 1, dead)
	require.Zero(t, takenSlots(f))
	_, dead = f.Held()
	require.Zero(t, dead, "it is counted once")

	// Its slot is also free for the next one, who does not inherit its holds.
	for range 10 {
		die()
	}
	require.Equal(t, 1, takenSlots(f))
	slot, err := open(t, dir).TakeSlot(2)
	require.NoError(t, err)
	ids, dead = f.Held()
	require.Empty(t, ids)
	require.Zero(t, dead)
	require.NoError(t, slot.Close())
}

func TestReadersLock(t *testing.T) {
	_, dir := made(t)
	over, cancel := context.WithCancel(context.Background())
	cancel()
	a, b := open(t, dir), open(t, dir)
	require.NoError(t, a.Lock(context.Background()))
	require.ErrorIs(t, b.Lock(over), context.Canceled)
	require.ErrorIs(t, a.Lock(over), context.Canceled, "also for others of the process")
	require.NoError(t, a.Unlock())

	dead, err := Open(dir, "s")
	require.NoError(t, err)
	require.NoError(t, dead.Lock(context.Background()))
	require.ErrorIs(t, a.Lock(over), context.Canceled)
	require.NoError(t, dead.Close(), "ends like a process does")
	require.NoError(t, a.Lock(context.Background()))
	require.NoError(t, a.Unlock())

	var inside atomic.Int32
	var wg sync.WaitGroup
	for i := range 4 {
		c := []*File{a, b}[i%2]
		wg.Go(func() {
			for range 100 {
				if err := c.Lock(context.Background()); err != nil || inside.Add(1) != 1 || inside.Add(-1) != 0 || c.Unlock() != nil {
					t.Error("two have the lock")
					return
				}
			}
		})
	}
	wg.Wait()
}

// takenSlots returns how many slots are marked, by living readers or dead ones.
func takenSlots(f *File) (n int) {
	for i := range f.opt.Slots {
		if mark, _ := f.loadMark(i); mark != 0 {
			n++
		}
	}
	return n
}

func TestReadersLockIsTriedWithoutWaiting(t *testing.T) {
	_, dir := made(t)
	private, err := Private(options())
	require.NoError(t, err)
	a := open(t, dir)
	for _, pair := range [][2]*File{{a, open(t, dir)}, {a, a}, {private, private}} {
		ok, err := pair[0].TryLock()
		require.NoError(t, err)
		require.True(t, ok)
		ok, err = pair[1].TryLock()
		require.NoError(t, err)
		require.False(t, ok)
		require.NoError(t, pair[0].Unlock())
		ok, err = pair[1].TryLock()
		require.NoError(t, err)
		require.True(t, ok, "a try that failed left nothing behind")
		require.NoError(t, pair[1].Unlock())
	}
}
