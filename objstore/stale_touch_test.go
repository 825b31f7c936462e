package objstore

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/objstore/internal/objtest"
)

// A handle that is stale by now counts on no object, and leaves the readers' lock free for the next one.
func TestStaleHandleLeavesTheLockFree(t *testing.T) {
	s := newStore(t, Options{RingSize: 4096, MaxObjectSize: 2000, Readers: 1, Generation: generation(t, "0.31.0")})
	h, err := s.Put("a", image(600, 1))
	require.NoError(t, err)
	r := s.readers[0]
	lock := r.counter.lock.(objtest.Lock)
	stale := h
	stale.ID++
	require.ErrorIs(t, r.Touch(context.Background(), "a", stale), ErrStale)
	require.Empty(t, lock, "the lock is free")
	v, err := r.Get("a", h)
	require.NoError(t, err)
	s.Segment().Ring()[h.Address] ^= 1 // the object goes while it is looked at
	require.ErrorIs(t, v.Release(), ErrStale)
	s.Segment().Ring()[h.Address] ^= 1
	require.Empty(t, lock)
	s.readAll(t, h, "a")
}
