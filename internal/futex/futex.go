// Package futex waits on and wakes words in shared memory.
package futex

import (
	"errors"
	"sync/atomic"
	"time"
)

// ErrUnsupported reports a system without futexes.
var ErrUnsupported = errors.New("futex: not supported on this system, only on linux/amd64 and linux/arm64")

// Wait sleeps until the word w is woken, for timeout at most, unless its value
// is not old any more. It may also return early for no reason, so the caller
// checks its condition again. Only a failing system call is an error.
func Wait(w *atomic.Uint32, old uint32, timeout time.Duration) error { return wait(w, old, timeout) }

// Wake wakes up to n sleepers on the word w, in any process.
func Wake(w *atomic.Uint32, n int) error { return wake(w, n) }
