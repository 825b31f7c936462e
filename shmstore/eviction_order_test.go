package shmstore_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/shmstore"
)

// idOffset is where the id of a chunk is, in front of its payload.
const idOffset = 64

// The writer takes the id away and looks at the slots after that. A reader that finds the id just before has named
// the object in its slot by then, so the object stays.
func TestReaderThatComesJustBeforeAnEvictionKeepsItsObject(t *testing.T) {
	failpoint.Need(t)
	s, o := inFolder(t, shmstore.Options{ReaderSlots: 1})
	h := idle(t, s, "a", 1000, 'a').Handle()
	r, err := shmstore.Open(o.Name, shmstore.ReaderOptions{Dir: o.Dir})
	require.NoError(t, err)
	id := mem.Addr(s.Segment().Bytes()[h.Offset-idOffset:])
	var v *shmstore.View
	came := false
	mem.Watch(func(a mem.Access, word []byte) {
		if came || a != mem.Stores || mem.Addr(word) != id {
			return
		}
		came = true
		v, err = r.Get(h)
	})
	defer mem.Watch(nil)
	gone, evicted := s.Evict("a")
	require.NoError(t, evicted)
	require.True(t, came, "the writer takes the id away")
	require.NoError(t, err, "the id was there")
	require.Empty(t, gone, "it is looked at")
	for i := range 70 {
		idle(t, s, fmt.Sprint(i), 1000, 'b')
	}
	require.NoError(t, v.Check())
	require.Equal(t, bytes.Repeat([]byte{'a'}, 1000), v.Bytes())
	v.Release()
	require.NoError(t, r.Close())
}

// The writer takes the id of an object away before it looks who holds the object. A reader that comes in that moment
// and holds nothing is refused, although the object stays, because of another reader, and can be read later. Only what
// no request keeps is evicted, so no handle that somebody relies on is refused.
func TestReaderThatComesDuringAnEvictionIsRefusedForThatMoment(t *testing.T) {
	failpoint.Need(t)
	s, o := inFolder(t, shmstore.Options{ReaderSlots: 2})
	h := idle(t, s, "a", 1000, 'a').Handle()
	var readers [2]*shmstore.Reader
	for i := range readers {
		var err error
		readers[i], err = shmstore.Open(o.Name, shmstore.ReaderOptions{Dir: o.Dir})
		require.NoError(t, err)
	}
	holding, err := readers[0].Get(h)
	require.NoError(t, err)
	var during error
	came := false
	failpoint.Set(func(name string) {
		if name == "pool.evict.killed" && !came {
			came = true
			_, during = readers[1].Get(h)
		}
	})
	defer failpoint.Set(nil)
	gone, evicted := s.Evict("a")
	require.NoError(t, evicted)
	require.True(t, came)
	require.Empty(t, gone, "a reader holds it")
	require.ErrorIs(t, during, shmstore.ErrStale)
	require.NoError(t, holding.Check())

	v, err := readers[1].Get(h)
	require.NoError(t, err, "the id is there again")
	require.Equal(t, bytes.Repeat([]byte{'a'}, 1000), v.Bytes())
	v.Release()
	holding.Release()
	for _, r := range readers {
		require.NoError(t, r.Close())
	}
}

// An object without its key is the first to go, but not while a reader looks at it.
func TestRemovedObjectStaysWhileAReaderLooksAtIt(t *testing.T) {
	s, o := inFolder(t, shmstore.Options{ReaderSlots: 1})
	h := idle(t, s, "a", 1000, 'a').Handle()
	r, err := shmstore.Open(o.Name, shmstore.ReaderOptions{Dir: o.Dir})
	require.NoError(t, err)
	v, err := r.Get(h)
	require.NoError(t, err)
	require.True(t, s.Remove("a"))
	gone, err := s.Evict()
	require.NoError(t, err)
	require.Empty(t, gone)
	for i := range 70 {
		idle(t, s, fmt.Sprint(i), 1000, 'b')
	}
	require.NoError(t, v.Check())
	require.Equal(t, bytes.Repeat([]byte{'a'}, 1000), v.Bytes())
	v.Release()
	before := chunks(t, s)
	gone, err = s.Evict()
	require.NoError(t, err)
	require.Len(t, gone, before, "nobody looks at it any more")
	require.Contains(t, gone, h.ID)
	require.NoError(t, r.Close())
}
