package fault

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// InChild runs the test t once more in a child process with the attributes, which may be nil, and returns
// true there. In the parent it waits for the child, whose failure or skip becomes that of t, and returns
// false: the test returns then. It is for limits that are a whole process'.
func InChild(t *testing.T, attr *syscall.SysProcAttr) bool {
	t.Helper()
	const mark = "RINGCACHE_TEST_CHILD"
	if os.Getenv(mark) == t.Name() {
		return true
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^"+t.Name()+"$", "-test.v", "-test.count=1",
		"-test.timeout=5m")
	cmd.Env = append(os.Environ(), mark+"="+t.Name())
	cmd.SysProcAttr = attr
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Start()
	if errno := syscall.Errno(0); errors.As(err, &errno) && attr != nil && attr.Cloneflags != 0 {
		t.Skipf("namespaces are not allowed here: clone flags %#x: %v (errno %d)", attr.Cloneflags, err, errno)
	}
	if err != nil {
		t.Fatal(err)
	}
	err = cmd.Wait()
	t.Logf("child:\n%s", &out)
	switch {
	case err != nil:
		t.Fatal(err)
	case strings.Contains(out.String(), "--- SKIP"):
		t.Skip("the child skipped, see above")
	case !strings.Contains(out.String(), "--- PASS: "+t.Name()):
		t.Fatal("the child did not run the test")
	}
	return false
}

// OwnMounts are the attributes of a child with its own mounts, and, for one who is not root, its own
// users, so that it may mount.
func OwnMounts() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		a.Cloneflags |= syscall.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	return a
}

// Mount mounts a new tmpfs in a child with [OwnMounts], until the test ends. Options are those of
// mount, such as "size=64m". Where that is not allowed, it skips the test.
func Mount(t testing.TB, dir, options string) {
	t.Helper()
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Skipf("own mounts are not allowed here: %v (errno %d)", err, err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("mounting a tmpfs with %s is not allowed here: %v (errno %d)", options, err, err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
}

// LimitDescriptors leaves this process n descriptors that it can open, until restore is
// called. It is for a child of [InChild], in which no other goroutine opens files.
func LimitDescriptors(t testing.TB, n int) (restore func()) {
	t.Helper()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	open := OpenDescriptors(t)
	// The limit is one above the highest number that a new descriptor gets: so many are free below.
	next := 0
	for limit := 0; ; limit++ {
		if next == n {
			if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(limit), Max: was.Max}); err != nil {
				t.Fatal(err)
			}
			return func() {
				if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
					t.Fatal(err)
				}
			}
		}
		if !open[limit] {
			next++
		}
	}
}

// OpenDescriptors returns the open descriptors of this process.
func OpenDescriptors(t testing.TB) map[int]bool {
	t.Helper()
	var all unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &all); err != nil {
		t.Fatal(err)
	}
	open := map[int]bool{}
	for fd := range min(int(all.Cur), 4096) { // without opening one
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
			open[fd] = true
		}
	}
	return open
}
