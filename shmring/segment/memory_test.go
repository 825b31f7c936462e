//go:build linux

package segment

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/memory"
)

// inChild runs the test t once more in a child process with the attributes, and
// returns true there. In the parent it waits for the child, whose failure or
// skip becomes that of t.
func inChild(t *testing.T, attr *syscall.SysProcAttr) bool {
	t.Helper()
	const mark = "RINGCACHE_TEST_CHILD"
	if os.Getenv(mark) == t.Name() {
		return true
	}
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^"+t.Name()+"$", "-test.v", "-test.count=1", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), mark+"="+t.Name())
	cmd.SysProcAttr = attr
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Start()
	if errno := syscall.Errno(0); errors.As(err, &errno) && attr.Cloneflags != 0 {
		t.Skipf("namespaces are not allowed here: clone flags %#x: %v (errno %d)", attr.Cloneflags, err, errno)
	}
	require.NoError(t, err)
	err = cmd.Wait()
	t.Logf("child:\n%s", &out)
	require.NoError(t, err)
	if strings.Contains(out.String(), "--- SKIP") {
		t.Skip("the child skipped, see above")
	}
	require.Contains(t, out.String(), "--- PASS: "+t.Name())
	return false
}

// ownMounts gives a child its own mounts, and, to one who is not root, its own
// users, so that it may mount.
func ownMounts() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		a.Cloneflags |= syscall.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	return a
}

// mount mounts a new tmpfs that ends with the child.
func mount(t *testing.T, dir, options string) {
	t.Helper()
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Skipf("own mounts are not allowed here: %v (errno %d)", err, err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("mounting a tmpfs with %s is not allowed here: %v (errno %d)", options, err, err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
}

func empty(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

const mib = 1 << 20

func TestSmallMount(t *testing.T) {
	if !inChild(t, ownMounts()) {
		return
	}
	for _, dir := range []string{t.TempDir(), "/dev/shm"} {
		mount(t, dir, "size=64m")
		_, err := Create(Options{Name: "big", Dir: dir, RingSize: 128 * mib})
		require.ErrorIs(t, err, ErrNoSpace)
		require.ErrorIs(t, err, syscall.ENOSPC)
		var space *SpaceError
		require.ErrorAs(t, err, &space)
		require.False(t, space.Cgroup)
		require.Equal(t, dir, space.Where)
		require.Equal(t, int64(128*mib), space.Need)
		require.Equal(t, int64(64*mib), space.Have)
		require.Equal(t, int64(64*mib), space.Size)
		require.Regexp(t, "remount,size=128m|--shm-size=128m|--tmpfs .*=128m|sizeLimit: 128Mi", err.Error())
		t.Log(err)
		empty(t, dir)

		// 32 MiB, and then all that the mount has, are really there.
		for _, size := range []int{32 * mib, 64 * mib} {
			s, err := Create(Options{Name: "fits", Dir: dir, RingSize: size})
			require.NoError(t, err)
			for i := 0; i < size; i += 4096 {
				s.Ring()[i] = 1
			}
			_, err = Create(Options{Name: "more", Dir: dir, RingSize: 32*mib + 1})
			require.ErrorIs(t, err, ErrNoSpace)
			require.NoError(t, s.Destroy())
			empty(t, dir)
		}
	}
}

// All pass the look at the free space and take it piece by piece.
func TestCreatesRaceForTheLastSpace(t *testing.T) {
	if !inChild(t, ownMounts()) {
		return
	}
	dir := t.TempDir()
	mount(t, dir, "size=64m")
	for _, racers := range []int{2, 3} {
		for range 20 {
			var wg sync.WaitGroup
			made, errs := make([]*Segment, racers), make([]error, racers)
			for i := range racers {
				wg.Go(func() {
					made[i], errs[i] = Create(Options{Name: fmt.Sprint("racer", i), Dir: dir, RingSize: 40 * mib})
				})
			}
			wg.Wait()
			won := 0
			for i, s := range made {
				if s == nil {
					require.ErrorIs(t, errs[i], ErrNoSpace)
					require.ErrorAs(t, errs[i], new(*SpaceError))
					continue
				}
				won++
				left, err := os.ReadDir(dir)
				require.NoError(t, err)
				require.Len(t, left, 1, "nothing of the losers")
				for at := 0; at < len(s.Ring()); at += 4096 {
					s.Ring()[at] = 1
				}
				require.NoError(t, s.Destroy())
			}
			require.Equal(t, 1, won, "%v", errs)
			empty(t, dir)
			var st unix.Statfs_t
			require.NoError(t, unix.Statfs(dir, &st))
			require.Equal(t, st.Blocks, st.Bfree)
		}
	}
}

func TestHugePagesOfAMountThatHasThem(t *testing.T) {
	if !inChild(t, ownMounts()) {
		return
	}
	for _, huge := range []string{"never", "advise", "within_size", "always"} {
		dir := t.TempDir()
		mount(t, dir, "size=64m,huge="+huge)
		s, err := Create(Options{Name: "huge", Dir: dir, RingSize: 16*mib + 100, DataOffset: 32})
		require.NoError(t, err)
		_, _ = rand.Read(s.Bytes())
		before := bytes.Clone(s.Bytes())
		r, err := s.Prepare(t.Context(), memory.Options{HugePages: true})
		require.NoError(t, err)
		t.Logf("huge=%s\n%v", huge, r)
		require.True(t, bytes.Equal(before, s.Bytes()))
		require.True(t, r.Prefault.Obtained)
		require.LessOrEqual(t, r.HugePages.Obtained, r.HugePages.Possible)
		require.Equal(t, r.HugePages.Obtained == r.HugePages.Possible && r.HugePages.Possible > 0, r.HugePages.Reason == "")
		require.NoError(t, s.Destroy())
	}
}

// TestLockBeyondTheLimit needs a process of its own: the limit is one's.
func TestLockBeyondTheLimit(t *testing.T) {
	if !inChild(t, &syscall.SysProcAttr{}) {
		return
	}
	runtime.LockOSThread() // for good: the thread can't have its capability back
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 65536, Max: 65536}))
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	require.NoError(t, unix.Capget(&head, &caps[0]))
	caps[0].Effective &^= 1 << unix.CAP_IPC_LOCK
	require.NoError(t, unix.Capset(&head, &caps[0]))

	s := create(t, Options{Name: testName(t), RingSize: 4 * mib})
	r, err := s.Prepare(t.Context(), memory.Options{Lock: true})
	require.NoError(t, err)
	t.Log(r)
	require.Zero(t, r.Lock.Obtained)
	require.Contains(t, r.Lock.Reason, "RLIMIT_MEMLOCK is 65536 bytes")
	require.Len(t, r.Missing(), 1)
	require.Contains(t, r.String(), "RLIMIT_MEMLOCK")
	require.Equal(t, int64(s.Size()), r.Mapped, "what could be had is there")

	_, err = s.Prepare(t.Context(), memory.Options{Lock: true, NUMA: memory.NUMABind, NUMANodes: []int{1023}, Require: true})
	require.ErrorIs(t, err, memory.ErrMissing)
	require.ErrorContains(t, err, "lock: ")
	require.ErrorContains(t, err, "NUMA: ")
	t.Log(err)
}

func TestPrepareReportsWhatIsThere(t *testing.T) {
	s := create(t, Options{Name: testName(t), RingSize: 20*mib + 5, DataOffset: 32})
	secret := bytes.Clone(s.Secret())
	size := int64(s.Size())

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
	var seen []int64
	r, err = s.Prepare(t.Context(), memory.Options{
		Prefault: true, Workers: 2, HugePages: true, NUMA: memory.NUMABind, NUMANodes: []int{0}, Lock: true,
		Progress: func(done, total int64) {
			require.Equal(t, size, total)
			seen = append(seen, done)
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
		{NUMA: memory.NUMABind, NUMANodes: []int{1023}},
		{NUMA: memory.NUMAInterleave},
		{NUMA: memory.NUMAInterleave, NUMANodes: []int{0}},
	} {
		r, err := s.Prepare(t.Context(), o)
		require.NoError(t, err)
		t.Logf("%v %v: %v", o.NUMA, o.NUMANodes, r.Missing())
		require.Equal(t, r.NUMA.Obtained, r.NUMA.Reason == "")
	}
}

func TestPrepareOfOthers(t *testing.T) {
	w := create(t, Options{Name: testName(t), RingSize: mib})
	reader, err := Attach(Options{Name: w.Name(), RingSize: mib, ReadOnly: true})
	require.NoError(t, err)
	r, err := reader.Prepare(t.Context(), memory.Options{Prefault: true})
	require.NoError(t, err)
	require.Equal(t, int64(mib), r.Mapped)
	require.Empty(t, r.Missing())
	require.NoError(t, reader.Close())
	_, err = reader.Prepare(t.Context(), memory.Options{})
	require.ErrorIs(t, err, ErrClosed)

	// A file with holes is seen for what it is.
	name := testName(t)
	require.NoError(t, os.WriteFile(path(name), []byte("x"), 0o600))
	require.NoError(t, os.Truncate(path(name), mib))
	holes, err := Attach(Options{Name: name, RingSize: mib})
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

	private, err := Private(make([]byte, mib), Options{RingSize: mib})
	require.NoError(t, err)
	_, err = private.Prepare(t.Context(), memory.Options{})
	require.ErrorIs(t, err, shmring.ErrInvalid)
}

func TestPrepareIsCancelled(t *testing.T) {
	s := create(t, Options{Name: testName(t), RingSize: 24 * mib})
	ctx, cancel := context.WithCancel(t.Context())
	_, err := s.Prepare(ctx, memory.Options{Prefault: true, Workers: 1, Progress: func(done, _ int64) {
		require.Less(t, done, int64(24*mib))
		require.ErrorIs(t, s.Close(), ErrBusy)
		cancel()
	}})
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, s.Hold())
	s.Release()
}

func TestPrepareRefusesBadOptions(t *testing.T) {
	s := create(t, Options{Name: testName(t), RingSize: mib})
	_, err := s.Prepare(t.Context(), memory.Options{Workers: -1})
	require.ErrorIs(t, err, shmring.ErrInvalid)
	require.ErrorContains(t, err, "-1 workers")
}
