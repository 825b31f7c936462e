// Package failpoint names the places at which a test may end the process, to
// see what a writer that was killed there leaves behind. [Points] lists them.
//
// A production build contains no failpoints: the compiler removes each [Hit]. They are in a
// build with the race detector, and in one with the tag failpoints:
//
//	go test -tags failpoints ./...
package failpoint

import "sync/atomic"

// Point is a place at which a process may be killed.
type Point struct {
	Name string
	When string // what was done just before
}

var hook atomic.Pointer[func(name string)]

// Hit is a place where a process may be killed. It does nothing unless a test
// has set a hook, or [KillVariable] names the place.
func Hit(name string) {
	if Enabled {
		hit(name)
	}
}

func hit(name string) {
	if f := hook.Load(); f != nil {
		(*f)(name)
		return
	}
	Reach(name)
}

// Set makes f the hook of this process; nil removes it. It is for tests. Set panics where
// failpoints are left out, since a test that relies on the hook would see nothing fail.
func Set(f func(name string)) {
	switch {
	case !Enabled:
		panic("failpoint: " + leftOut)
	case f == nil:
		hook.Store(nil)
	default:
		hook.Store(&f)
	}
}

const leftOut = "this build has no failpoints; build with -race or with -tags failpoints"

// Need skips a test in a build without failpoints, and prints the reason.
func Need(t interface {
	Helper()
	Skip(args ...any)
},
) {
	t.Helper()
	if !Enabled {
		t.Skip(leftOut)
	}
}
