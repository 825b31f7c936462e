package shmstore_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/segment"
	"github.com/ringcache/ringcache/shmstore"
)

func TestReaderLooksInPlace(t *testing.T) {
	for _, align := range []int{64, 4096} {
		t.Run(fmt.Sprint(align), func(t *testing.T) {
			s, o := inFolder(t, shmstore.Options{Align: align, Size: 64 << 10, ReaderSlots: 1})
			r, err := shmstore.Open(o.Name, shmstore.ReaderOptions{Dir: o.Dir})
			require.NoError(t, err)
			_, err = shmstore.Open(o.Name, shmstore.ReaderOptions{Dir: o.Dir})
			require.ErrorContains(t, err, "slots")
			h := idle(t, s, "a", 5000, 7).Handle()
			v, err := r.Get(h)
			require.NoError(t, err)
			for i := range 50 {
				idle(t, s, fmt.Sprint(i), 6000, 9)
			}
			require.Equal(t, bytes.Repeat([]byte{7}, 5000), v.Bytes())
			require.NoError(t, v.Check())
			require.ErrorIs(t, r.Close(), segment.ErrBusy)
			gone, err := s.Evict("a")
			require.NoError(t, err)
			require.Empty(t, gone, "it is looked at")
			v.Release()
			v.Release()
			gone, err = s.Evict("a")
			require.NoError(t, err)
			require.NotEmpty(t, gone)
			_, err = r.Get(h)
			require.ErrorIs(t, err, shmstore.ErrStale)
			require.ErrorContains(t, err, fmt.Sprintf("id %d at offset %d", h.ID, h.Offset))
			require.NoError(t, r.Close())
			require.NoError(t, r.Close())
			_, err = r.Get(h)
			require.ErrorIs(t, err, fs.ErrClosed)
		})
	}
}

// A handle comes from another process, so it may be anything.
func TestReaderRefusesHandlesThatLeadNowhere(t *testing.T) {
	s, o := inFolder(t, shmstore.Options{})
	good := idle(t, s, "a", 5000, 7).Handle()
	r, err := shmstore.Open(o.Name, shmstore.ReaderOptions{Dir: o.Dir})
	require.NoError(t, err)
	for name, change := range map[string]func(h *shmstore.Handle){
		"offset 0":        func(h *shmstore.Handle) { h.Offset = 0 },
		"offset behind":   func(h *shmstore.Handle) { h.Offset = uint64(o.Size) + 1 },
		"offset huge":     func(h *shmstore.Handle) { h.Offset = 1<<64 - 1 },
		"length behind":   func(h *shmstore.Handle) { h.Length = uint64(o.Size) },
		"length huge":     func(h *shmstore.Handle) { h.Length = 1<<64 - 1 },
		"id of no object": func(h *shmstore.Handle) { h.ID = 1<<32 - 1 },
	} {
		h := good
		change(&h)
		_, err := r.Get(h)
		require.ErrorIs(t, err, shmring.ErrCorrupt, name)
	}
	other := good
	other.ID++
	_, err = r.Get(other)
	require.ErrorIs(t, err, shmstore.ErrStale)
	v, err := r.Get(good)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(filepath.Join(o.Dir, o.Name), 0))
	require.ErrorIs(t, v.Check(), shmring.ErrCorrupt)
	require.ErrorContains(t, v.Check(), "truncated")
	v.Release()
	_, err = r.Get(good)
	require.ErrorIs(t, err, shmring.ErrCorrupt)
	require.NoError(t, r.Close())
	_, err = begin(t, s, "r").Put("b", make([]byte, 100), shmstore.PutOptions{})
	require.ErrorIs(t, err, shmring.ErrCorrupt)
	var corrupt *shmstore.CorruptError
	require.ErrorAs(t, err, &corrupt)
	require.NoError(t, s.Abandon())
}
