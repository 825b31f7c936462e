package objstore

import (
	"fmt"
	"runtime"
	"sync"

	"github.com/ringcache/ringcache/serde"
)

// View is an object seen in place. Its value points into the segment: it must
// not be written to, neither its bytes nor its shapes, and not be used after Release.
//
// The zero View shows nothing; [Reader.GetInto] makes it show an object, as often as
// the last one was released. A View must not be copied. While GetInto runs, nothing else
// may use the View; Release may be called by any goroutine.
//
// A view that the program drops without Release is a bug of the program. Once the
// garbage collector finds that neither the View nor a Tensor of its value can be
// reached, the view is ended as by Release, and its reader reports where it was
// got ([ReaderOptions].Logger, [Reader.Views]). The collector does not follow
// slices of the segment: a Data or a serde.Pickle that was taken out of a value
// keeps nothing, so keep the View for as long as they are used.
type View struct {
	_ [0]sync.Mutex // go vet reports copies
	shown
	use     *use // nil before the first Get
	cleanup runtime.Cleanup
}

// use is what a view has to end. It stands apart from the View, so that it can be
// ended when the View is gone, and so it must not lead back to it.
type use struct {
	at uintptr // where the caller of the reader got the view

	mu      sync.Mutex
	open    bool
	chunks  *chunks
	handle  serde.Address
	held    bool     // a slot names the chunk
	place   int      // there
	counter *counter // nil: does not count, or has counted
	done    func()   // ends what keeps the object; nil if nothing does
	reader  *Reader  // nil: a writer's
	err     error    // of the end
}

// show makes the view, which is not open, show an object of a layout. Its use is open
// from here on.
func (v *View) show(l *decoded, data []byte) {
	if old := v.tensors; v.needs(len(l.tensors)) {
		v.cleanup.Stop()
		runtime.KeepAlive(old) // not collected before that: it would end this use
		// Whoever has the View or one of the tensors has their memory, so this is found
		// when nobody has either.
		v.cleanup = runtime.AddCleanup(v.grow(len(l.tensors)), (*use).unreachable, v.use)
	}
	v.fill(l, data)
	v.use.open = true
}

// unreachable is called when the memory of a view's tensors is gone.
// See docs/decisions.md, "A dropped view is ended, counted and reported".
func (u *use) unreachable() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.open {
		// It waits for a lock and calls a logger; other cleanups wait for this one.
		go func() { _, _ = u.end(true) }()
	}
}

// end ends a view, and reports whether it was open.
func (u *use) end(dropped bool) (ended bool, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.open {
		return false, u.err
	}
	if u.counter != nil {
		u.err = u.count()
	}
	u.endLease()
	if u.done != nil {
		u.done()
	}
	if dropped && u.reader != nil {
		u.reader.report(u)
	}
	u.open = false
	u.chunks.seg.Release() // last: until then nothing is closed
	return true, u.err
}

// endLease ends the hold in the reader's slot.
func (u *use) endLease() {
	if u.held {
		u.held = false
		_ = u.chunks.guard(&u.handle, func() error { u.reader.slot.Release(u.place); return nil })
	}
}

func (u *use) count() error {
	return u.chunks.guard(&u.handle, func() error { return u.counter.read(u.chunks, &u.handle, u.held) })
}

// Value returns the object, nil if the view is not open. Its tensors are slices of the
// segment.
func (v *View) Value() serde.Value { return v.value }

// Item returns the object if it is an item, else nil.
func (v *View) Item() *serde.Item {
	it, _ := v.value.(*serde.Item)
	return it
}

// Check reports whether the bytes are still the object's: called after they were
// used, a [StaleError] means that they may have been another's. The id in front
// of them is all there is to compare. A writer of this library destroys it
// before it writes anything else, so a nil error means that what was read so far
// was right, unless the new bytes repeat the id at that very place. After Release it
// fails with an fs.ErrClosed.
func (v *View) Check() error { return v.whileOpen(func() error { return nil }) }

// Clone copies the object out of the segment and checks the copy. It is valid
// for ever. The errors are those of Check.
func (v *View) Clone() (serde.Value, error) {
	var c serde.Value
	if err := v.whileOpen(func() error { c = serde.Clone(v.value); return nil }); err != nil {
		return nil, err
	}
	return c, nil
}

// whileOpen calls f, and checks then.
func (v *View) whileOpen(f func() error) error {
	defer runtime.KeepAlive(v)
	u := v.use
	if u == nil {
		return errReleased()
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.open {
		return errReleased()
	}
	return u.chunks.guard(&u.handle, func() error {
		if err := f(); err != nil {
			return err
		}
		return u.chunks.check(&u.handle, u.held)
	})
}

func errReleased() error {
	return fmt.Errorf("%w: the view was released, or shows nothing yet", errClosed)
}

// Release ends the view: from then on the writer may free the chunk. It counts the
// read, if its store counts; a reader with a slot has counted when it got the
// view. An error that is [ErrNotCounted], [ErrStale] or
// [ErrCorrupt] means that the read was not counted; any other is the lock's, for
// a read that was. Only the first call does anything; later ones return the
// same, until the view is used again.
func (v *View) Release() error {
	defer runtime.KeepAlive(v)
	if v.use == nil {
		return nil
	}
	ended, err := v.use.end(false)
	if ended {
		v.clear()
	}
	return err
}
