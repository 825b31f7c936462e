//go:build linux

package segment_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ringcache/ringcache/fuzz/fault"
	"github.com/ringcache/ringcache/internal/shmfile"
	"github.com/ringcache/ringcache/shmring/memory"
	"github.com/ringcache/ringcache/shmring/segment"
)

const mib = 1 << 20

// TestLockBeyondTheLimit needs a process of its own: the limit is one's.
func TestLockBeyondTheLimit(t *testing.T) {
	if !fault.InChild(t, nil) {
		return
	}
	runtime.LockOSThread() // for good: the thread can't have its capability back
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 65536, Max: 65536}))
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	require.NoError(t, unix.Capget(&head, &caps[0]))
	caps[0].Effective &^= 1 << unix.CAP_IPC_LOCK
	require.NoError(t, unix.Capset(&head, &caps[0]))

	s := create(t, segment.Options{Name: testName(t), RingSize: 4 * mib})
	r, err := s.Prepare(t.Context(), memory.Options{Lock: true})
	require.NoError(t, err)
	t.Log(r)
	require.Zero(t, r.Lock.Obtained)
	require.Contains(t, r.Lock.Reason, "RLIMIT_MEMLOCK is 64.0 KiB")
	require.Len(t, r.Missing(), 1)
	require.Contains(t, r.String(), "RLIMIT_MEMLOCK")
	require.Equal(t, int64(len(s.Bytes())), r.Mapped, "what could be had is there")

	_, err = s.Prepare(t.Context(), memory.Options{Lock: true, NUMA: "bind", NUMANodes: []int{1023}, Require: true})
	require.ErrorIs(t, err, memory.ErrMissing)
	require.ErrorContains(t, err, "lock: ")
	require.ErrorContains(t, err, "NUMA: ")
	t.Log(err)
}

func TestPrepareReportsWhatIsThere(t *testing.T) {
	s := create(t, segment.Options{Name: testName(t), RingSize: 20*mib + 5, DataOffset: 32})
	secret := bytes.Clone(s.Secret())
	size := int64(len(s.Bytes()))

	r, err := s.Prepare(t.Context(), memory.Options{})
	require.NoError(t, err)
	require.True(t, r.Allocated, r)
	require.True(t, r.DontDump, r)
	require.False(t, r.Prefault.Asked)
	require.Less(t, r.Mapped, size, "nothing was touched but the secret")
	require.Empty(t, r.Missing())
	require.Zero(t, r.Lock.Obtained)

	// A writer goes on meanwhile, and finds what it wrote.
	var stop atomic.Bool
	var wg sync.WaitGroup
	last := byte(0)
	wg.Go(func() {
		for ; !stop.Load(); last++ {
			for i := 0; i < len(s.Ring()); i += 4096 {
				s.Ring()[i] = last + 1
			}
		}
	})
	var seen, totals []int64
	r, err = s.Prepare(t.Context(), memory.Options{
		Prefault: true, Workers: 2, HugePages: true, NUMA: "bind", NUMANodes: []int{0}, Lock: true,
		Progress: func(done, total int64) {
			seen, totals = append(seen, done), append(totals, total)
		},
	})
	stop.Store(true)
	wg.Wait()
	require.NoError(t, err)
	t.Log(r)
	require.Equal(t, secret, s.Secret())
	for i := 0; i < len(s.Ring()); i += 4096 {
		require.Equal(t, last, s.Ring()[i])
	}
	require.IsIncreasing(t, seen)
	require.Equal(t, slices.Repeat([]int64{size}, len(seen)), totals)
	require.Equal(t, size, seen[len(seen)-1])
	require.True(t, r.Prefault.Obtained, r)
	require.Equal(t, size, r.Mapped)
	require.Equal(t, size, r.Resident)
	for _, c := range []struct {
		name   string
		had    bool
		reason string
	}{
		{"huge pages", r.HugePages.Obtained == r.HugePages.Possible && r.HugePages.Possible > 0, r.HugePages.Reason},
		{"NUMA", r.NUMA.Obtained, r.NUMA.Reason},
		{"lock", r.Lock.Obtained == size, r.Lock.Reason},
	} {
		require.Equal(t, c.had, c.reason == "", "%s: obtained, or a reason: %v", c.name, r)
	}
	sum := int64(0)
	for _, n := range r.NUMA.Nodes {
		sum += n
	}
	if r.NUMA.Nodes != nil {
		require.InDelta(t, size, sum, 4096)
	}

	for _, o := range []memory.Options{
		{NUMA: "bind", NUMANodes: []int{1023}},
		{NUMA: "interleave"},
		{NUMA: "interleave", NUMANodes: []int{0}},
	} {
		t.Run(fmt.Sprint(o.NUMA, o.NUMANodes), func(t *testing.T) {
			r, err := s.Prepare(t.Context(), o)
			require.NoError(t, err)
			t.Log(r.Missing())
			require.Equal(t, r.NUMA.Obtained, r.NUMA.Reason == "")
		})
	}
}

func TestPrepareOfOthers(t *testing.T) {
	w := create(t, segment.Options{Name: testName(t), RingSize: mib})
	reader, err := segment.Attach(segment.Options{Name: w.Name(), RingSize: mib, ReadOnly: true})
	require.NoError(t, err)
	r, err := reader.Prepare(t.Context(), memory.Options{Prefault: true})
	require.NoError(t, err)
	require.Equal(t, int64(mib), r.Mapped)
	require.Empty(t, r.Missing())
	require.NoError(t, reader.Close())
	_, err = reader.Prepare(t.Context(), memory.Options{})
	require.ErrorIs(t, err, fs.ErrClosed)

	// A file with holes is seen for what it is.
	name := testName(t)
	require.NoError(t, os.WriteFile(path(name), []byte("x"), 0o600))
	require.NoError(t, os.Truncate(path(name), mib))
	holes, err := segment.Attach(segment.Options{Name: name, RingSize: mib})
	require.NoError(t, err)
	r, err = holes.Prepare(t.Context(), memory.Options{})
	require.NoError(t, err)
	require.False(t, r.Allocated)
	require.Contains(t, r.AllocatedReason, fmt.Sprintf("%d of 1048576 bytes", os.Getpagesize()))
	r, err = holes.Prepare(t.Context(), memory.Options{Prefault: true, Require: true})
	require.NoError(t, err, "prefaulting fills them")
	require.True(t, r.Allocated)
	require.NoError(t, os.Remove(path(name)))
	_, err = holes.Prepare(t.Context(), memory.Options{Require: true})
	require.ErrorIs(t, err, memory.ErrMissing)
	require.NoError(t, holes.Close())

	private, err := segment.Private(make([]byte, mib), segment.Options{RingSize: mib})
	require.NoError(t, err)
	_, err = private.Prepare(t.Context(), memory.Options{})
	require.ErrorIs(t, err, fs.ErrInvalid)
	require.ErrorContains(t, err, "the segment is private memory")
}

// A file that vLLM made takes its memory as it is used. Mapping all of it must not take what others
// need, only to fail.
func TestHolesThatCanNotBeFilledAreRefused(t *testing.T) {
	const size = 1 << 40
	var st unix.Statfs_t
	require.NoError(t, unix.Statfs(shmfile.DefaultDir, &st))
	if st.Blocks == 0 || int64(st.Bavail)*st.Bsize >= size {
		t.Skip("/dev/shm has room for a TiB")
	}
	name := testName(t)
	require.NoError(t, os.WriteFile(path(name), nil, 0o600))
	require.NoError(t, os.Truncate(path(name), size))
	s, err := segment.Attach(segment.Options{Name: name, RingSize: size})
	require.NoError(t, err)
	_, err = s.Prepare(t.Context(), memory.Options{Prefault: true})
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.ErrorContains(t, err, path(name)+" needs 1.00 TiB")
	d := newDriver(t)
	p := register(t, s, d, segment.PinOptions{})
	require.ErrorIs(t, p.Reason(), syscall.ENOSPC)
	require.Empty(t, d.log)
	var file unix.Stat_t
	require.NoError(t, unix.Stat(path(name), &file))
	require.Zero(t, file.Blocks, "nothing was taken")
	require.NoError(t, s.Close())
}

func TestPrepareIsCancelled(t *testing.T) {
	s := create(t, segment.Options{Name: testName(t), RingSize: 24 * mib})
	ctx, cancel := context.WithCancel(t.Context())
	var seen []int64
	var closing error
	_, err := s.Prepare(ctx, memory.Options{Prefault: true, Workers: 1, Progress: func(done, _ int64) {
		seen, closing = append(seen, done), s.Close()
		cancel()
	}})
	require.ErrorIs(t, err, context.Canceled)
	require.NotEmpty(t, seen)
	require.Less(t, slices.Max(seen), int64(24*mib))
	require.ErrorIs(t, closing, segment.ErrBusy)
	require.NoError(t, s.Hold())
	s.Release()

	// The segment is as usable as before, and the rest can be mapped later.
	for i := range s.Ring() {
		s.Ring()[i] = byte(i >> 12)
	}
	r, err := s.Prepare(t.Context(), memory.Options{Prefault: true})
	require.NoError(t, err)
	require.True(t, r.Prefault.Obtained, r)
	for i, b := range s.Ring() {
		if b != byte(i>>12) {
			require.Equal(t, byte(i>>12), b, "byte %d", i)
		}
	}
}

func TestPrepareRefusesBadOptions(t *testing.T) {
	s := create(t, segment.Options{Name: testName(t), RingSize: mib})
	_, err := s.Prepare(t.Context(), memory.Options{Workers: -1})
	require.ErrorIs(t, err, fs.ErrInvalid)
	require.ErrorContains(t, err, "-1 workers")
}
