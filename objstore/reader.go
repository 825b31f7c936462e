package objstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmring/segment"
)

// Reader looks at the objects of a segment that another process writes.
type Reader struct {
	chunks  chunks
	counter *counter // nil: observes
	sidecar *sidecar.File
	slot    *sidecar.Slot // where it names what it looks at; nil if it has none
	log     *slog.Logger
	memory  memory

	dropped   atomic.Uint64
	collected atomic.Int64 // when collect ran, ns

	closed sync.Once
	err    error // of the end of sidecar
}

// Open attaches to the segment name, or reads ReaderOptions.Segment and does not look at
// name. The errors are those of segment.Attach.
//
// If the segment is that of a pool, the reader takes a slot in its sidecar:
// what it looks at is not evicted meanwhile, whatever else ends. [Reader.Protected]
// reports whether it got one.
func Open(name string, o ReaderOptions) (*Reader, error) {
	o, err := o.resolve()
	if err != nil {
		return nil, err
	}
	if o.Segment != nil {
		return newReader(o.Segment, o), nil
	}
	seg, err := segment.Attach(segment.Options{
		Name: name, RingSize: o.RingSize, DataOffset: o.Generation.DataOffset, Dir: o.Dir,
		ReadOnly: o.Lock == nil && !o.SidecarLock,
	})
	if err != nil {
		return nil, err
	}
	r := newReader(seg, o)
	if r.sidecar, err = sidecar.Open(o.Dir, name); err == nil {
		r.chunks.sidecar = r.sidecar
		err = r.takeSlot()
	}
	switch {
	case err == nil:
		if o.SidecarLock {
			r.counter = newCounter(r.sidecar, o.LockTimeout, o.Readers)
		}
		return r, nil
	case o.SidecarLock:
	case errors.Is(err, segment.ErrForeign), errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		// Something else made the segment, or this process may only look.
		return r, nil
	}
	return nil, errors.Join(err, r.Close())
}

func newReader(seg *segment.Segment, o ReaderOptions) *Reader {
	return &Reader{
		chunks:  chunks{seg: seg, options: serde.Options{Generation: o.Generation}},
		counter: newCounter(o.Lock, o.LockTimeout, o.Readers),
		log:     cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
	}
}

// Get returns a view of the object at a handle. The key is that of the object;
// it is part of the signature, and not used in generations without one. The
// caller must Release the view, which also counts the read.
//
// Errors: [SignatureError], [StaleError], [shmstore.CorruptError], an fs.ErrClosed; [ErrBusy] if
// a reader with a slot has too many views open. A failed Get counts nothing, so
// that the writer keeps the chunk, as upstream has it.
func (r *Reader) Get(key string, h serde.Address) (*View, error) {
	v := &View{use: &use{at: caller()}}
	if err := r.show(v, key, h); err != nil {
		return nil, err
	}
	return v, nil
}

// GetInto is Get into a view that the caller has, and may use again after its Release: its
// memory is that of the last value where it fits, so a loop with one view allocates nothing
// for an object that the reader remembers, unless it has tensors in lists.
//
// What the last value led to, its tensors, elems and lists, belongs to the new value from
// then on. A view that is not released yet fails with an fs.ErrInvalid, and shows what it
// showed. After any other error it shows nothing. The errors are those of Get besides.
//
// If the view is dropped, what is reported is where GetInto was first called for it.
func (r *Reader) GetInto(v *View, key string, h serde.Address) error {
	if v.use == nil {
		v.use = &use{at: caller()}
	}
	return r.show(v, key, h)
}

// show makes a view show the object at a handle.
func (r *Reader) show(v *View, key string, h serde.Address) error {
	u := v.use
	if u.open {
		return fmt.Errorf("%w: the view shows %d:%d; release it before it is used again",
			errInvalid, u.handle.Address, u.handle.ID)
	}
	if err := r.chunks.seg.Hold(); err != nil {
		return err
	}
	u.chunks, u.reader, u.handle, u.counter, u.done, u.err = &r.chunks, r, h, r.counter, nil, nil
	err := r.chunks.guard(&u.handle, func() error {
		if err := r.hold(u); err != nil {
			return err
		}
		failpoint.Hit("reader.held")
		return r.look(v, key)
	})
	failpoint.Hit("reader.got")
	if err != nil {
		if errors.Is(err, ErrBusy) {
			r.collect()
		}
		u.endLease()
		v.clear()
		r.chunks.seg.Release()
		return err
	}
	if u.held && u.counter != nil {
		// The hold keeps the object from here on. So the read counts at once, as
		// vLLM's does: when the request ends, the counts are complete.
		u.err = u.count()
		u.counter = nil
	}
	return nil
}

// look verifies, locates and decodes, and looks at the id once more: what was decoded may
// have changed meanwhile. What the reader remembers it does not do again. look is called in
// a guard.
func (r *Reader) look(v *View, key string) error {
	c, u := &r.chunks, v.use
	h, secret, signed := &u.handle, c.seg.Secret(), c.options.Generation.Signed
	seen := r.memory.sight(h)
	known := !signed || seen.verified(secret, key, h)
	if !known {
		if err := c.verify(key, h); err != nil {
			return err
		}
	}
	chunk, err := c.locate(h, false) // its slot names it only now
	if err != nil {
		return err
	}
	var l *decoded
	var data []byte
	if seen != nil {
		l, data = seen.layout.of(chunk.Payload)
	}
	if l == nil {
		known = false
		l, data, err = r.memory.decode(c, h, chunk.Payload)
	}
	if again := c.check(h, u.held); again != nil {
		return again
	}
	if err != nil {
		return err
	}
	if !known {
		r.memory.addSight(secret, key, h, l)
	}
	v.show(l, data)
	return nil
}

// caller returns where the function that calls it was called.
func caller() uintptr {
	var pc [1]uintptr
	runtime.Callers(3, pc[:])
	return pc[0]
}

// collect runs the garbage collector, at most once a second, where views that were
// dropped are in the way: by itself it may take minutes to run. A clock that was set back does
// not delay it.
func (r *Reader) collect() {
	now, last := time.Now().UnixNano(), r.collected.Load()
	if (now-last >= int64(time.Second) || now < last) && r.collected.CompareAndSwap(last, now) {
		runtime.GC()
	}
}

// report reports a view that was dropped.
func (r *Reader) report(u *use) {
	r.dropped.Add(1)
	frame, _ := runtime.CallersFrames([]uintptr{u.at}).Next()
	r.log.Warn("objstore: a view was dropped without Release; it is released now", "segment", r.chunks.seg.Name(),
		"address", u.handle.Address, "id", u.handle.ID, "got at", fmt.Sprintf("%s:%d", frame.File, frame.Line),
		"error", u.err)
}

// Views returns how many views are open and how many were dropped.
//
// Open views are those that have not ended, also if nothing leads to them any more and the
// garbage collector has not run since; and calls that are running. Close succeeds while
// there is none.
//
// Dropped views were never released. The garbage collector found them, and they were ended
// then; see [View]. Any is a bug of the program.
func (r *Reader) Views() (open int, dropped uint64) {
	return r.chunks.seg.Holds(), r.dropped.Load()
}

// Verify checks the signature of a handle for a key without reading the object.
// It fails with [SignatureError], and does nothing in generations without
// signatures.
func (r *Reader) Verify(key string, h serde.Address) error {
	if err := r.chunks.seg.Hold(); err != nil {
		return err
	}
	defer r.chunks.seg.Release()
	return r.verify(key, &h)
}

// Segment returns the segment, for its name and its bytes.
func (r *Reader) Segment() *segment.Segment { return r.chunks.seg }

func (r *Reader) verify(key string, h *serde.Address) error {
	return r.chunks.guard(h, func() error { return r.chunks.verify(key, h) })
}

// Touch announces that the object at a handle will be read later in the same
// request. vLLM's workers touch every item of a request before they get the
// first. What it does depends on the generation: before 0.12 nothing; up to
// 0.31 it counts a read if every reader has read the object once; from 0.32 on
// it only verifies the handle. The errors are those of Get, and ctx's while it
// waits for the lock.
func (r *Reader) Touch(ctx context.Context, key string, h serde.Address) error {
	if err := r.chunks.seg.Hold(); err != nil {
		return err
	}
	defer r.chunks.seg.Release()
	return touch(ctx, &r.chunks, r.counter, &h, func() error { return r.verify(key, &h) })
}

// Close unmaps the segment. It fails with [ErrBusy] while a view is open, and
// does nothing when called again. A view that was dropped is open until the garbage
// collector finds it: then Close, called again, succeeds.
func (r *Reader) Close() error {
	if err := r.chunks.seg.Close(); err != nil {
		if errors.Is(err, ErrBusy) {
			r.collect()
		}
		return err
	}
	r.closed.Do(func() {
		var errs []error
		if r.slot != nil {
			errs = append(errs, r.chunks.guard(&serde.Address{}, r.slot.Close))
		}
		if r.sidecar != nil {
			errs = append(errs, r.sidecar.Close())
		}
		r.err = errors.Join(errs...)
	})
	return r.err
}
