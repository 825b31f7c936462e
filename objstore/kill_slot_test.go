package objstore

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/sidecar"
)

// slotChild takes a slot, looks at an object and gives the slot back.
func slotChild(o killOrder) error {
	r, err := Open(o.Name, killReaderOptions(false))
	if err != nil {
		return err
	}
	h, err := parseHandle(o.Handle)
	if err != nil {
		return err
	}
	v, err := r.Get(h.key, h.h)
	if err != nil {
		return err
	}
	return errors.Join(v.Release(), r.Close())
}

// killUnleased puts an object that nobody leases.
func killUnleased(t *testing.T, w *writer, key string, nonce uint64) killHandle {
	t.Helper()
	h, r := killHandle{key: key, nonce: nonce, n: 5000}, begin(t, w, "r")
	var err error
	h.h, err = r.Request.Put(h.key, killItem(h.n, h.bytes()), PutOptions{Note: killNote(h.nonce, h.n)})
	require.NoError(t, err)
	r.Rollback()
	return h
}

// killSlots kills readers while they take a slot and while they give it back. The slot is always the first
// one, and a reader died in it before, with a chunk named. Nothing stays held, and the next reader there is
// protected.
func killSlots(t *testing.T, report *killReport, each int) {
	name := killName(t, "slots")
	w, err := pool.create(killOptions(name, true))
	require.NoError(t, err)
	for i := range each {
		for _, place := range slotPlaces {
			h := killUnleased(t, w, "k", uint64(i))
			before, err := sidecar.Open("", name)
			require.NoError(t, err)
			slot, err := before.TakeSlot(1)
			require.NoError(t, err)
			_, ok := slot.Hold(h.h.ID)
			require.True(t, ok)
			gone, err := w.Evict(h.key)
			require.NoError(t, err)
			require.False(t, gone)
			require.NoError(t, before.Close(), "ends as a process does")

			p := startChild(t, killOrder{Role: "slot", Name: name, Place: place, Nth: 1, Handle: h.String()})
			require.NoError(t, p.WaitKilled())
			report.killed(place)
			gone, err = w.Evict(h.key)
			require.NoError(t, err)
			require.True(t, gone, "killed at %s", place)

			next, err := Open(name, killReaderOptions(false))
			require.NoError(t, err)
			require.True(t, next.Protected())
			h = killUnleased(t, w, "l", uint64(i))
			v, err := next.Get(h.key, h.h)
			require.NoError(t, err)
			requireHeld(t, w, h)
			require.NoError(t, v.Release())
			require.NoError(t, next.Close())
			gone, err = w.Evict(h.key)
			require.NoError(t, err)
			require.True(t, gone)
			deadReaders(t, w) // which clears the slots of the dead
			taken, dead, bad := sidecar.Of(w.Segment()).LookAtSlots()
			require.Zero(t, taken)
			require.Zero(t, dead)
			require.Empty(t, bad)
			require.NoError(t, w.CheckStructure())
		}
	}
	require.NoError(t, w.Close())
	requireNoFiles(t, name)
}
