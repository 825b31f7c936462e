// Package failpoint names the places at which a test may end the process, to
// see what a writer that was killed there leaves behind.
package failpoint

import "sync/atomic"

var hook atomic.Pointer[func(name string)]

// Hit is a place where a process may be killed. It does nothing unless a test
// has set a hook.
func Hit(name string) {
	if f := hook.Load(); f != nil {
		(*f)(name)
	}
}

// Set makes f the hook of this process; nil removes it. It is for tests.
func Set(f func(name string)) {
	if f == nil {
		hook.Store(nil)
		return
	}
	hook.Store(&f)
}
