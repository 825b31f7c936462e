package shmstore_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/shmring/segment"
	"github.com/ringcache/ringcache/shmstore"
)

// inFolder creates a store in a folder of the test. Its structure is verified when the
// test ends, and nothing is left of it.
func inFolder(t testing.TB, o shmstore.Options) (*shmstore.Store, shmstore.Options) {
	t.Helper()
	o.Name, o.Dir = "s", t.TempDir()
	if o.Size == 0 {
		o.Size = 64 << 10
	}
	s, err := shmstore.Create(o)
	require.NoError(t, err)
	ends(t, s)
	return s, o
}

func ends(t testing.TB, s *shmstore.Store) {
	t.Helper()
	t.Cleanup(func() {
		assert.NoError(t, s.CheckStructure())
		assert.NoError(t, s.Abandon())
	})
}

// private makes a store with a sidecar over private memory.
func private(t testing.TB, o shmstore.Options) *shmstore.Store {
	t.Helper()
	seg, err := segment.Private(nil, o.SegmentOptions())
	require.NoError(t, err)
	o.Segment = seg
	s, err := shmstore.Create(o)
	require.NoError(t, err)
	ends(t, s)
	return s
}

func begin(t testing.TB, s *shmstore.Store, id string) *shmstore.Request {
	t.Helper()
	r, err := s.Begin(shmstore.RequestOptions{ID: id})
	require.NoError(t, err)
	return r
}

// put puts n bytes b, which a request keeps.
func put(t testing.TB, r *shmstore.Request, key string, n int, b byte) *shmstore.Object {
	t.Helper()
	o, err := r.Put(key, bytes.Repeat([]byte{b}, n), shmstore.PutOptions{})
	require.NoError(t, err)
	return o
}

// idle puts n bytes b, which nobody keeps.
func idle(t testing.TB, s *shmstore.Store, key string, n int, b byte) *shmstore.Object {
	t.Helper()
	r := begin(t, s, "of "+key)
	defer r.Rollback()
	return put(t, r, key, n, b)
}

// cached reports whether a key is in a store.
func cached(s *shmstore.Store, key string) bool {
	_, err := s.Find(key)
	return err == nil
}

// chunks returns the number of objects and reservations in a store.
func chunks(t testing.TB, s *shmstore.Store) int {
	t.Helper()
	st, err := s.Inspect(nil)
	require.NoError(t, err)
	return st.Chunks
}
