//go:build linux

package segment_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ringcache/ringcache/internal/pintest"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/memory"
	"github.com/ringcache/ringcache/shmring/segment"
)

// These tests prove that a driver can pin a segment, and nothing about a driver. They stay
// below 8 MiB, the usual RLIMIT_MEMLOCK.

// pinned populates and pins a segment, or skips the test.
func pinned(t *testing.T, s *segment.Segment) *pintest.Pinned {
	t.Helper()
	r, err := s.Prepare(t.Context(), memory.Options{Prefault: true})
	require.NoError(t, err)
	require.True(t, r.Prefault.Obtained, r)
	p, err := pintest.Pin(s.Bytes())
	if errors.Is(err, pintest.ErrNotAllowed) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Release()) })
	return p
}

// attach attaches a segment, and closes it when the test ends.
func attach(t *testing.T, o segment.Options) *segment.Segment {
	t.Helper()
	s, err := segment.Attach(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// counters returns pintest.Counters, or skips the test.
func counters(t *testing.T) (acquired, released int64) {
	t.Helper()
	acquired, released, err := pintest.Counters()
	if errors.Is(err, pintest.ErrNotAllowed) {
		t.Skip(err)
	}
	require.NoError(t, err)
	return acquired, released
}

// grown waits until a counter has grown by at least so many pages, and returns by how many it has.
func grown(t *testing.T, least int64, growth func() int64) int64 {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		n := growth()
		if n >= least {
			return n
		}
		require.True(t, time.Now().Before(deadline), "%d pages, want %d", n, least)
	}
}

func TestSegmentsCanBePinned(t *testing.T) {
	// If this is not allowed, the whole test is skipped.
	require.NoError(t, pinned(t, create(t, segment.Options{Name: testName(t), RingSize: 4 * mib})).Release())
	for _, c := range []struct {
		name     string
		options  segment.Options
		attached bool
	}{
		{"created", segment.Options{RingSize: 4 * mib}, false},
		{"created, with a secret", segment.Options{RingSize: 4*mib - 32, DataOffset: 32}, false},
		{"created, with a sidecar", segment.Options{RingSize: 4*mib - 4096 - 77, DataOffset: 32, Sidecar: sidecarOptions()}, false},
		{"attached", segment.Options{RingSize: 4*mib - 1}, true},
		{"attached, with a sidecar", segment.Options{RingSize: 4*mib - 100, DataOffset: 32, Sidecar: sidecarOptions()}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.options.Name = testName(t)
			w := create(t, c.options)
			s := w
			if c.attached {
				s = attach(t, c.options)
			}
			acquired, released := counters(t)
			p := pinned(t, s)
			page := os.Getpagesize()
			pages := int64(len(s.Bytes())+page-1) / int64(page)
			least := pages - pages/10 // the sums over all CPUs come late

			for i := range w.Ring() { // after the pages were pinned
				w.Ring()[i] = byte(i + i>>8)
			}
			got := make([]byte, len(w.Bytes()))
			require.NoError(t, p.Copy(got, 0))
			require.True(t, bytes.Equal(w.Bytes(), got), "a device sees what the writer writes")

			// Other processes that pin and unpin meanwhile only add.
			pins := grown(t, least, func() int64 { now, _ := counters(t); return now - acquired })
			require.NoError(t, p.Release())
			unpins := grown(t, least, func() int64 { _, now := counters(t); return now - released })
			t.Logf("%-26s %8d bytes %5d pages: %5d pinned, %5d unpinned", c.name, len(s.Bytes()), pages, pins, unpins)
		})
	}
}

func TestReadOnlySegmentsCanNotBePinned(t *testing.T) {
	o := segment.Options{Name: testName(t), RingSize: mib}
	pinned(t, create(t, o)) // the pages are not the reason
	o.ReadOnly = true
	_, err := pintest.Pin(attach(t, o).Bytes())
	require.ErrorIs(t, err, pintest.ErrNotPinnable)
	require.ErrorIs(t, err, unix.EFAULT)
	t.Log(err)
}

// onDisk returns a new folder on a file system that writes pages back to a disk, or skips
// the test.
func onDisk(t *testing.T) (dir, fileSystem string) {
	t.Helper()
	candidates := []string{os.TempDir(), "/var/tmp"}
	if cache, err := os.UserCacheDir(); err == nil {
		candidates = append(candidates, cache)
	}
	candidates = append(candidates, ".")
	var why []string
	for _, at := range candidates {
		var st unix.Statfs_t
		if err := unix.Statfs(at, &st); err != nil {
			why = append(why, fmt.Sprintf("%s: %v", at, err))
			continue
		}
		name := map[int64]string{unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs"}[st.Type]
		if name == "" {
			why = append(why, fmt.Sprintf("%s: file system %#x", at, st.Type))
			continue
		}
		dir, err := os.MkdirTemp(at, ".ringcache-test-")
		if err != nil {
			why = append(why, err.Error())
			continue
		}
		t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
		return dir, name
	}
	t.Skipf("no folder on ext4, xfs or btrfs: %q", why)
	return "", ""
}

// TestSegmentsOnADiskCanNotBePinned: the kernel must know when pages of a disk's file change.
func TestSegmentsOnADiskCanNotBePinned(t *testing.T) {
	pinned(t, create(t, segment.Options{Name: testName(t), RingSize: mib}))
	dir, fileSystem := onDisk(t)
	s := create(t, segment.Options{Name: "s", Dir: dir, RingSize: mib})
	clear(s.Ring())
	p, err := pintest.Pin(s.Bytes())
	if errors.Is(err, pintest.ErrNotAllowed) {
		t.Skip(err)
	}
	if err == nil {
		require.NoError(t, p.Release())
	}
	require.ErrorIs(t, err, pintest.ErrNotPinnable, fileSystem)
	require.ErrorIs(t, err, unix.EFAULT)
	t.Logf("%s: %v", fileSystem, err)
}

// TestPinnedRingStaysInUse pins the mappings of a writer and of a reader, as two processes with a
// device each do. Both devices copy every chunk while the writer goes on.
func TestPinnedRingStaysInUse(t *testing.T) {
	o := segment.Options{Name: testName(t), RingSize: mib - 77, DataOffset: 32}
	w := create(t, o)
	r := attach(t, o)
	devices := map[string]*pintest.Pinned{"the writer's": pinned(t, w), "the reader's": pinned(t, r)}
	fill := func(id uint32, i int) byte { return byte(id*167 + uint32(i)*13 + uint32(i)>>8) }

	sent := make(chan shmring.Chunk, 8)
	var done atomic.Int64 // the last chunk that the reader and the devices are done with
	done.Store(-1)
	var wg sync.WaitGroup
	wg.Go(func() {
		got := make([]byte, mib)
		for c := range sent {
			found, err := shmring.ReadChunk(r.Ring(), c.Address)
			if assert.NoError(t, err) && assert.Equal(t, c.ID, found.ID) && assert.Equal(t, c.Size, found.Size) {
				wrong := 0
				for i, b := range found.Payload {
					if b != fill(c.ID, i) {
						wrong++
					}
				}
				assert.Zero(t, wrong, "bytes of chunk %d in the reader's view", c.ID)
				at := o.DataOffset + int(c.Address%uint64(o.RingSize)) + shmring.HeaderSize
				for name, d := range devices {
					got := got[:len(found.Payload)]
					assert.NoError(t, d.Copy(got, at))
					assert.True(t, bytes.Equal(found.Payload, got), "chunk %d in %s pages", c.ID, name)
				}
			}
			done.Store(int64(c.ID))
		}
	})

	ring := shmring.NewRing(w.Ring(), shmring.RingOptions{})
	total, rng := 0, rand.New(rand.NewPCG(1, 2))
	for total < 8*o.RingSize {
		size := 1 + rng.IntN(o.RingSize/5)
		address, id, payload, err := ring.Alloc(size)
		if errors.Is(err, shmring.ErrFull) {
			ring.Free(func(id uint32, _ []byte) bool { return int64(id) <= done.Load() }, ring.Size())
			runtime.Gosched()
			continue
		}
		if !assert.NoError(t, err) {
			break
		}
		for i := range payload {
			payload[i] = fill(id, i)
		}
		sent <- shmring.Chunk{Address: address, ID: id, Size: shmring.HeaderSize + size}
		total += size
	}
	close(sent)
	wg.Wait()
	require.NoError(t, ring.CheckStructure())
	t.Logf("%d chunks, %d bytes in a ring of %d", done.Load()+1, total, o.RingSize)
}

// TestPinnedPagesOutliveTheSegment: a device may copy until the pages are unpinned, also when
// names and mapping are gone.
func TestPinnedPagesOutliveTheSegment(t *testing.T) {
	o := segment.Options{Name: testName(t), RingSize: mib}
	s, err := segment.Create(o)
	require.NoError(t, err)
	p := pinned(t, s)
	require.NoError(t, s.Unlink())
	require.NoFileExists(t, path(o.Name))
	for i := range s.Ring() {
		s.Ring()[i] = byte(i*7 + i>>8)
	}
	want, got := bytes.Clone(s.Ring()), make([]byte, mib)
	require.NoError(t, p.Copy(got, 0))
	require.True(t, bytes.Equal(want, got), "unlinked")

	require.NoError(t, s.Close())
	next := create(t, o) // gets other pages
	clear(next.Ring())
	clear(got)
	require.NoError(t, p.Copy(got, 0))
	require.True(t, bytes.Equal(want, got), "unmapped")
}
