//go:build linux && (amd64 || arm64)

package pycompat_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/fault"
	"github.com/ringcache/ringcache/internal/futex"
	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/internal/shmfile"
)

const futexWake = 1 // FUTEX_WAKE of the kernel's futex.h

// A thread of Python waits for a lock without a limit, unlike this library's, which looks again now and then. So
// Unlock must wake it, also if it is the only one.
func TestUnlockWakesTheOnlyWaiter(t *testing.T) {
	s := open(t, fakeSemaphore(t, 1, shared, fileSize))
	require.NoError(t, s.Lock(context.Background()))

	f, size, err := shmfile.Open(filepath.Join(shmfile.DefaultDir, "sem."+s.Name()[1:]), true)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	m, err := shmfile.Map(f, size, true)
	require.NoError(t, err)
	whole, value := futex.Words(m)
	thread, woken := make(chan int, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		thread <- syscall.Gettid()
		woken <- fault.Guard(func() error { whole.Add(oneWaiter); return futex.Wait(value, 0, 10*time.Minute) })
	}()
	waitForFutex(t, <-thread, mem.Addr(m))

	require.NoError(t, s.Unlock())
	asleep, _, errno := syscall.Syscall6(syscall.SYS_FUTEX, mem.Addr(m), futexWake, 1, 0, 0, 0)
	require.Zero(t, errno)
	require.NoError(t, <-woken)
	require.Zero(t, asleep, "it had to be woken by hand")
	require.NoError(t, shmfile.Unmap(m))
}

// waitForFutex returns when a thread sleeps in a system call for the word at an address, or if the kernel doesn't
// show that. The number of the call is not compared: under an emulator it is the host's.
func waitForFutex(t *testing.T, thread int, address uintptr) {
	t.Helper()
	want := fmt.Sprintf("%#x", address)
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); runtime.Gosched() {
		b, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/syscall", thread))
		call := strings.Fields(string(b)) // number, arguments
		if err != nil || len(call) > 1 && call[1] == want {
			return
		}
	}
	t.Fatal("the thread never sleeps")
}
