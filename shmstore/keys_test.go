package shmstore_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/shmring/segment"
	"github.com/ringcache/ringcache/shmstore"
)

func TestPinKeepsAPayload(t *testing.T) {
	s, o := inFolder(t, shmstore.Options{Size: 8 << 10})
	ok, err := s.Pin("absent")
	require.NoError(t, err)
	require.False(t, ok)
	idle(t, s, "a", 1000, 1)
	idle(t, s, "b", 1000, 2)
	for range 2 {
		for _, key := range []string{"a", "b"} {
			ok, err = s.Pin(key)
			require.NoError(t, err)
			require.True(t, ok)
		}
	}
	r := begin(t, s, "r")
	_, err = r.Lookup("a", 1)
	require.NoError(t, err)
	r.Rollback()
	for i := range 20 {
		idle(t, s, fmt.Sprint(i), 3000, 9)
	}
	require.True(t, cached(s, "a"), "a look-up does not end the pin")
	s.Unpin("a")
	s.Unpin("absent")
	freed, err := s.Evict()
	require.NoError(t, err)
	require.NotEmpty(t, freed)
	require.False(t, cached(s, "a"))
	require.True(t, cached(s, "b"))
	s.Unpin()
	gone, err := s.Evict("b")
	require.NoError(t, err)
	require.NotEmpty(t, gone)

	idle(t, s, "c", 1000, 3)
	_, err = s.Pin("c")
	require.NoError(t, err)
	require.NoError(t, s.Detach())
	s, _, err = shmstore.Adopt(o)
	require.NoError(t, err)
	ends(t, s)
	gone, err = s.Evict("c")
	require.NoError(t, err)
	require.NotEmpty(t, gone, "a pin is one of its process")
}

func TestRemoveFreesTheKey(t *testing.T) {
	s := private(t, shmstore.Options{Size: 16 << 10})
	r := begin(t, s, "r")
	old := put(t, r, "a", 1000, 1)
	require.True(t, s.Remove("a"))
	require.False(t, s.Remove("a"))
	next := idle(t, s, "a", 2000, 2)
	require.Greater(t, next.Handle().ID, old.Handle().ID)
	again := begin(t, s, "again")
	held, err := again.HoldID(old.Handle().ID)
	require.NoError(t, err)
	require.Same(t, old, held)
	r.Rollback()
	b, err := again.Bytes(old)
	require.NoError(t, err)
	require.Equal(t, bytes.Repeat([]byte{1}, 1000), b)
	again.Rollback()
	_, err = begin(t, s, "late").HoldID(old.Handle().ID)
	require.ErrorIs(t, err, shmstore.ErrStale, "it went with who held it")
	require.ErrorContains(t, err, fmt.Sprintf("id %d", old.Handle().ID))
}

func TestClear(t *testing.T) {
	s := private(t, shmstore.Options{Size: 16 << 10})
	r := begin(t, s, "r")
	res, err := r.Reserve("a", 100, shmstore.PutOptions{})
	require.NoError(t, err)
	require.ErrorIs(t, s.Clear(), segment.ErrBusy)
	require.ErrorContains(t, s.Clear(), "1 reservations")
	o, err := res.Commit(1)
	require.NoError(t, err)
	require.ErrorContains(t, s.Clear(), "1 leases")
	require.NoError(t, r.Commit())
	r.Abort()
	idle(t, s, "b", 100, 1)
	_, err = s.Pin("b")
	require.NoError(t, err)
	require.NoError(t, s.Clear())
	require.False(t, cached(s, "a") || cached(s, "b"))
	require.Equal(t, 1, chunks(t, s), "what was aborted waits for the fence")
	s.Fence().Passed()
	require.Zero(t, chunks(t, s))
	require.Greater(t, idle(t, s, "a", 100, 1).Handle().ID, o.Handle().ID, "ids go on")
}
