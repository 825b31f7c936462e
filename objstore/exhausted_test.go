//go:build linux

package objstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/fault"
	"github.com/ringcache/ringcache/objstore/check"
	"github.com/ringcache/ringcache/shmring/segment"
)

func exhaustedOptions(dir string) Options {
	return Options{Name: "s", Dir: dir, RingSize: 64 << 10, MaxObjectSize: 16 << 10, Readers: 1, MaxObjects: 64, ReaderSlots: 2, TrustCounts: true}
}

func requireNothingIn(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestNoDescriptorIsLeft: with 0, 1, 2 ... descriptors left, everything that opens files fails with an
// error that names the reason, until there are enough. It leaves no descriptor open and no file, and a segment that is
// there stays as it was.
func TestNoDescriptorIsLeft(t *testing.T) {
	if !fault.InChild(t, nil) {
		return
	}
	dir, empty := t.TempDir(), t.TempDir()
	o := exhaustedOptions(dir)
	ro := ReaderOptions{Dir: dir, RingSize: o.RingSize, Readers: 1, SidecarLock: true}
	w, err := pool.create(o)
	require.NoError(t, err)
	unleased(t, w, "a", 1000, 'a')
	abandon(t, w)
	for name, open := range map[string]func() (end func() error, err error){
		"create pool": func() (func() error, error) {
			w, err := pool.create(exhaustedOptions(empty))
			if err != nil {
				return nil, err
			}
			return w.Close, nil
		},
		"create fifo": func() (func() error, error) {
			w, err := fifo.create(Options{Name: "s", Dir: empty, RingSize: 64 << 10, Readers: 1})
			if err != nil {
				return nil, err
			}
			return w.Close, nil
		},
		"adopt": func() (func() error, error) {
			w, a, err := adoptPool(o)
			if err != nil {
				return nil, err
			}
			require.Equal(t, 1, a.Kept)
			return func() error { return errors.Join(w.CheckStructure(), w.Segment().Close()) }, nil
		},
		"open": func() (func() error, error) {
			r, err := Open("s", ro)
			if err != nil {
				return nil, err
			}
			require.True(t, r.Protected())
			return r.Close, nil
		},
		"check": func() (func() error, error) {
			r, err := check.Segment("s", check.Options{Dir: dir})
			if err != nil {
				return nil, err
			}
			require.Empty(t, r.Findings)
			return func() error { return nil }, nil
		},
		"sweep": func() (func() error, error) {
			got, err := segment.Sweep(segment.SweepOptions{Prefix: "s", Dir: dir, AnyOwner: true})
			if err == nil && len(got) == 1 {
				err = got[0].Err
			}
			return func() error { return nil }, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			failed := 0
			for n := 0; ; n++ {
				before := fault.OpenDescriptors(t)
				restore := fault.LimitDescriptors(t, n)
				end, err := open()
				restore()
				if err != nil {
					failed++
					require.ErrorIs(t, err, syscall.EMFILE, "%d descriptors", n)
					require.Equal(t, before, fault.OpenDescriptors(t), "%d descriptors: %v", n, err)
					requireNothingIn(t, empty)
					require.Less(t, n, 50)
					continue
				}
				require.NoError(t, end())
				require.Equal(t, before, fault.OpenDescriptors(t), "after success")
				requireNothingIn(t, empty)
				break
			}
			require.Positive(t, failed, "it opened something")
			t.Logf("needs %d descriptors", failed)
		})
	}
	rep, err := check.Segment("s", check.Options{Dir: dir})
	require.NoError(t, err)
	require.Empty(t, rep.Findings)
	require.Equal(t, 1, rep.Chunks)
}

// TestFullTmpfs: a mount that is too small by any number of pages is an error of Create, which leaves nothing. A
// segment that is there can be read and adopted on a full mount, and put to: all of its memory was taken when it was created.
func TestFullTmpfs(t *testing.T) {
	if !fault.InChild(t, fault.OwnMounts()) {
		return
	}
	dir := t.TempDir()
	fault.Mount(t, dir, "size=256k")
	fill := filepath.Join(dir, "fill")
	refused := 0
	for pages := 0; ; pages++ { // free
		require.NoError(t, os.WriteFile(fill, make([]byte, 256<<10-pages*4096), 0o600))
		var made []error
		for _, k := range kinds {
			w, err := k.create(exhaustedFor(k, dir))
			made = append(made, err)
			if err == nil {
				require.NoError(t, w.CheckStructure())
				require.NoError(t, w.Close())
				continue
			}
			refused++
			require.ErrorIs(t, err, segment.ErrNoSpace, "%d pages", pages)
			left, err := filepath.Glob(filepath.Join(dir, "s*"))
			require.NoError(t, err)
			require.Empty(t, left, "%d pages", pages)
		}
		require.NoError(t, os.Remove(fill))
		if errors.Join(made...) == nil {
			break
		}
		require.Less(t, pages, 64)
	}
	require.Greater(t, refused, 30, "a segment and its sidecar take pages")

	o := exhaustedFor(pool, dir)
	w, err := pool.create(o)
	require.NoError(t, err)
	full, err := os.Create(fill)
	require.NoError(t, err)
	for err == nil {
		_, err = full.Write(make([]byte, 4096))
	}
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.NoError(t, full.Close())
	for round := range 3 {
		r, err := Open("s", ReaderOptions{Dir: dir, RingSize: o.RingSize, Readers: 1, SidecarLock: true})
		require.NoError(t, err)
		key := fmt.Sprint("k", round)
		h := unleased(t, w, key, 12<<10, byte('a'+round))
		b, err := bytesBehind(r, h, key)
		require.NoError(t, err)
		require.Len(t, b, 12<<10)
		require.NoError(t, r.Close())
		rep, err := check.Segment("s", check.Options{Dir: dir})
		require.NoError(t, err)
		require.Empty(t, rep.Findings)
		abandon(t, w)
		w, _, err = adoptPool(o)
		require.NoError(t, err)
		require.NoError(t, w.CheckStructure())
	}
	require.NoError(t, w.Close())
}

func exhaustedFor(k kind, dir string) Options {
	o := exhaustedOptions(dir)
	if k == fifo {
		o.MaxObjects, o.ReaderSlots, o.TrustCounts = 0, 0, false
	}
	return o
}
