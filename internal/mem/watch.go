package mem

import (
	"sync/atomic"

	"github.com/ringcache/ringcache/internal/failpoint"
)

// Access is what is about to be done to a word.
type Access string

// The accesses.
const (
	Loads  Access = "load"
	Stores Access = "store"
)

var watcher atomic.Pointer[func(Access, []byte)]

// Watch makes f be called before each load and store of a word of shared memory, by the
// goroutine that does it; nil ends that. It is for tests that run the accesses of some
// goroutines in every order (fuzz/explore). Only builds with failpoints can be watched.
func Watch(f func(a Access, word []byte)) {
	switch {
	case !failpoint.Enabled:
		panic("mem: this build can't be watched; build with -race or with -tags failpoints")
	case f == nil:
		watcher.Store(nil)
	default:
		watcher.Store(&f)
	}
}

func watch(a Access, word []byte) {
	if f := watcher.Load(); f != nil {
		(*f)(a, word)
	}
}
