package objstore

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/ringcache/ringcache/serde"
)

// View is an object seen in place. Its value points into the segment: it must
// not be written to, and not be used after Release.
//
// A view that the program drops without Release is a bug of the program. Once the
// garbage collector finds that neither the View nor a Tensor of its value can be
// reached, the view is ended as by Release, and its reader reports where it was
// got ([ReaderOptions].Logger, [Reader.Views]). The collector does not follow
// slices of the segment: a Data or a serde.Pickle that was taken out of a value
// keeps nothing, so keep the View for as long as they are used.
type View struct {
	use      *use
	value    serde.Value
	cleanups []runtime.Cleanup
	stop     sync.Once
}

// use is what a view has to end. It stands apart from the View, so that it can be
// ended when the View is gone, and so it must not lead back to it.
type use struct {
	chunks  chunks
	handle  serde.Address
	counter *counter // nil: does not count, or has counted
	done    func()   // ends what keeps the object; nil if nothing does
	reader  *Reader  // nil: a writer's
	at      uintptr  // where the reader's caller got the view

	reached atomic.Int64 // the View and the tensors that the collector has not taken yet
	once    sync.Once
	err     error
}

func (u *use) view(value serde.Value) *View {
	v := &View{use: u, value: value}
	u.reached.Store(1)
	switch value := value.(type) {
	case *serde.Item:
		for i := range value.Elems {
			v.watch(value.Elems[i].Data)
		}
	case *serde.Tensor:
		v.watch(value)
	}
	v.cleanups = append(v.cleanups, runtime.AddCleanup(v, (*use).unreachable, u))
	return v
}

// watch makes each tensor of the data keep the view open: who keeps one goes on
// reading the segment.
func (v *View) watch(d any) {
	switch d := d.(type) {
	case *serde.Tensor:
		v.use.reached.Add(1)
		v.cleanups = append(v.cleanups, runtime.AddCleanup(d, (*use).unreachable, v.use))
	case []any:
		for _, d := range d {
			v.watch(d)
		}
	}
}

// unreachable is called for each thing that kept the view open.
func (u *use) unreachable() {
	if u.reached.Add(-1) == 0 {
		go u.end(true) // it waits for a lock and calls a logger; other cleanups wait for this one
	}
}

func (u *use) end(dropped bool) {
	u.once.Do(func() {
		if u.counter != nil {
			u.err = u.count()
		}
		if u.done != nil {
			u.done()
		}
		if u.reader != nil {
			u.reader.ended(u, dropped)
		}
		u.chunks.seg.Release() // last: until then nothing is closed
	})
}

func (u *use) count() error {
	return u.chunks.guard(u.handle, func() error { return u.counter.read(u.chunks, u.handle) })
}

// Value returns the object. Its tensors are slices of the segment.
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
// was right, unless the new bytes repeat the id at that very place. It must not
// be called after Release.
func (v *View) Check() error {
	defer runtime.KeepAlive(v)
	u := v.use
	return u.chunks.guard(u.handle, func() error { return u.chunks.check(u.handle) })
}

// Clone copies the object out of the segment and checks the copy. It is valid
// for ever.
func (v *View) Clone() (serde.Value, error) {
	defer runtime.KeepAlive(v)
	u := v.use
	var c serde.Value
	err := u.chunks.guard(u.handle, func() error {
		c = serde.Clone(v.value)
		return u.chunks.check(u.handle)
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Release ends the view: from then on the writer may free the chunk. It counts the
// read, if its store counts; a reader with a slot has counted when it got the
// view. An error that is [ErrNotCounted], [ErrStale] or
// [ErrCorrupt] means that the read was not counted; any other is the lock's, for
// a read that was. Only the first call does anything; later ones return the
// same.
func (v *View) Release() error {
	defer runtime.KeepAlive(v)
	v.use.end(false)
	v.stop.Do(func() {
		for _, c := range v.cleanups {
			c.Stop()
		}
	})
	return v.use.err
}
