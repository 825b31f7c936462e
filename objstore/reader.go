package objstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmring/segment"
)

// Reader looks at the objects of a segment that another process writes.
type Reader struct {
	chunks  chunks
	gen     *pycompat.Generation
	counter *counter // nil: observes
	sidecar *sidecar.File
	slot    *sidecar.Slot // where it names what it looks at; nil if it has none
	log     *slog.Logger

	dropped   atomic.Uint64
	collected atomic.Int64 // when collect ran, ns

	closed sync.Once
	err    error // of the end of sidecar
}

// Open attaches to the segment name. The errors are those of segment.Attach.
//
// If the segment is that of a Pool, the reader takes a slot in its sidecar:
// what it looks at is not evicted meanwhile, whatever else ends. [Reader.Protected]
// reports whether it got one.
func Open(name string, o ReaderOptions) (*Reader, error) {
	o, err := o.resolve()
	if err != nil {
		return nil, err
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
	case errors.Is(err, sidecar.ErrForeign), errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		// Something else made the segment, or this process may only look.
		return r, nil
	}
	return nil, errors.Join(err, r.Close())
}

// takeSlot takes a slot if the segment has slots and one is free.
func (r *Reader) takeSlot() error {
	if !r.chunks.seg.DescribedBy(r.sidecar) {
		// Left by a segment of this name that is gone.
		err := r.sidecar.Close()
		r.sidecar, r.chunks.sidecar = nil, nil
		return errors.Join(sidecar.ErrForeign, err)
	}
	if c := r.sidecar.Options(); !sameWire(c.Generation, r.gen) {
		return fmt.Errorf("%w: segment %s was written for vLLM %s, this reader is for %s", ErrInvalid, r.chunks.seg.Name(), c.Generation, r.gen.Version)
	} else if c.Policy != sidecar.Pool {
		return nil
	}
	err := r.chunks.guard(Handle{}, func() (err error) {
		r.slot, err = r.sidecar.TakeSlot(os.Getpid())
		return err
	})
	if errors.Is(err, ErrBusy) {
		return nil // see Protected
	}
	return err
}

// Protected reports whether objects are kept while this reader looks at them,
// until their views are released or the process ends. Else it relies on what the
// writer keeps of requests.
func (r *Reader) Protected() bool { return r.slot != nil }

// NewReader reads from a segment that the caller attached, or made over private
// memory. The reader owns it from now on.
func NewReader(seg *segment.Segment, o ReaderOptions) (*Reader, error) {
	o, err := o.resolve()
	if err != nil {
		return nil, err
	}
	if err := matches(seg, o.RingSize, o.Generation); err != nil {
		return nil, err
	}
	return newReader(seg, o), nil
}

func newReader(seg *segment.Segment, o ReaderOptions) *Reader {
	g := o.Generation
	return &Reader{
		chunks:  chunks{seg: seg, options: serde.Options{Generation: g}},
		gen:     g,
		counter: newCounter(o.Lock, o.LockTimeout, o.Readers),
		log:     cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
	}
}

// Get returns a view of the object at a handle. key is the object's cache key;
// it is part of the signature, and not used in generations without one. The
// caller must Release the view, which also counts the read.
//
// Errors: [SignatureError], [StaleError], [shmstore.CorruptError], [ErrClosed]; [ErrBusy] if
// a reader with a slot has too many views open. A failed Get counts nothing, so
// that the writer keeps the chunk, as upstream has it.
func (r *Reader) Get(h Handle, key string) (*View, error) {
	if err := r.chunks.seg.Hold(); err != nil {
		return nil, err
	}
	u := &use{chunks: r.chunks, handle: h, counter: r.counter, reader: r, at: caller()}
	var value serde.Value
	err := r.hold(u)
	if err == nil {
		failpoint.Hit("reader.held")
		value, err = r.get(u.chunks, h, key)
	}
	failpoint.Hit("reader.got")
	if err != nil {
		if u.done != nil {
			u.done()
		}
		r.chunks.seg.Release()
		return nil, err
	}
	if u.done != nil && u.counter != nil {
		// The hold keeps the object from here on. So the read counts at once, as
		// vLLM's does: when the request ends, the counts are complete.
		u.err = u.count()
		u.counter = nil
	}
	return u.view(value), nil
}

// caller returns where the function that calls it was called.
func caller() uintptr {
	var pc [1]uintptr
	runtime.Callers(3, pc[:])
	return pc[0]
}

// hold names the object in the slot, if there is one, before it is looked at.
func (r *Reader) hold(u *use) error {
	if r.slot == nil {
		return nil
	}
	err := r.chunks.guard(u.handle, func() error {
		place, ok := r.slot.Hold(u.handle.ID)
		if !ok {
			return fmt.Errorf("%w: %s: %d views are open, a reader can have no more; release some", ErrBusy, r.chunks.seg.Name(), r.Stats().Open-1)
		}
		u.chunks.held = true
		u.done = func() { _ = r.chunks.guard(u.handle, func() error { r.slot.Release(place); return nil }) }
		return nil
	})
	if errors.Is(err, ErrBusy) {
		r.collect()
	}
	return err
}

// collect runs the garbage collector, at most once a second, where views that were
// dropped are in the way: by itself it may take minutes to run.
func (r *Reader) collect() {
	now, last := time.Now().UnixNano(), r.collected.Load()
	if now-last >= int64(time.Second) && r.collected.CompareAndSwap(last, now) {
		runtime.GC()
	}
}

// ended is called at the end of each view.
func (r *Reader) ended(u *use, dropped bool) {
	if !dropped {
		return
	}
	r.dropped.Add(1)
	frame, _ := runtime.CallersFrames([]uintptr{u.at}).Next()
	r.log.Warn("objstore: a view was dropped without Release; it is released now", "segment", r.chunks.seg.Name(),
		"address", u.handle.Address, "id", u.handle.ID, "got at", fmt.Sprintf("%s:%d", frame.File, frame.Line), "error", u.err)
}

// ReaderStats are numbers of views.
type ReaderStats struct {
	// Open views are those that have not ended, also if nothing leads to them any
	// more and the garbage collector has not run since; and calls that are running.
	// Close succeeds while it is 0.
	Open int
	// Dropped views were never released. The garbage collector found them, and
	// they were ended then; see [View]. Any is a bug of the program.
	Dropped uint64
}

// Stats returns how many views are open and how many were dropped.
func (r *Reader) Stats() ReaderStats {
	return ReaderStats{Open: r.chunks.seg.Holds(), Dropped: r.dropped.Load()}
}

func (r *Reader) get(chunks chunks, h Handle, key string) (serde.Value, error) {
	if err := r.verify(h, key); err != nil {
		return nil, err
	}
	return chunks.read(h)
}

// Verify checks the signature of a handle for a key without reading the object.
// It fails with [SignatureError], and does nothing in generations without
// signatures.
func (r *Reader) Verify(key string, h Handle) error {
	if err := r.chunks.seg.Hold(); err != nil {
		return err
	}
	defer r.chunks.seg.Release()
	return r.verify(h, key)
}

// Segment returns the segment, for its name and its bytes.
func (r *Reader) Segment() *segment.Segment { return r.chunks.seg }

// Generation returns the generation that the store is read in.
func (r *Reader) Generation() *pycompat.Generation { return r.gen }

func (r *Reader) verify(h Handle, key string) error {
	if !r.gen.Signed {
		return nil
	}
	return r.chunks.guard(h, func() error { return verify(r.chunks.seg.Secret(), key, h) })
}

// Touch announces that the object at a handle will be read later in the same
// request. vLLM's workers touch every item of a request before they get the
// first. What it does depends on the generation: before 0.12 nothing; up to
// 0.31 it counts a read if every reader has read the object once; from 0.32 on
// it only verifies the handle. The errors are those of Get, and ctx's while it
// waits for the lock.
func (r *Reader) Touch(ctx context.Context, key string, h Handle) error {
	if err := r.chunks.seg.Hold(); err != nil {
		return err
	}
	defer r.chunks.seg.Release()
	return touch(ctx, r.chunks, r.gen, r.counter, h, func() error { return r.verify(h, key) })
}

// touch is the touch of whoever has a lock, a reader or such a writer.
func touch(ctx context.Context, chunks chunks, g *pycompat.Generation, c *counter, h Handle, verify func() error) error {
	switch g.Counting {
	case pycompat.CountTouch:
		if c == nil {
			return nil
		}
		return chunks.guard(h, func() error { return c.touch(ctx, chunks, h) })
	case pycompat.CountPerAddress:
		if err := verify(); err != nil {
			return err
		}
		return chunks.guard(h, func() error {
			_, err := chunks.locate(h)
			return err
		})
	}
	return nil
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
			errs = append(errs, r.chunks.guard(Handle{}, r.slot.Close))
		}
		if r.sidecar != nil {
			errs = append(errs, r.sidecar.Close())
		}
		r.err = errors.Join(errs...)
	})
	return r.err
}

// matches checks a segment that a caller brings against its options.
func matches(seg *segment.Segment, ringSize int, g *pycompat.Generation) error {
	if off := g.DataOffset; len(seg.Ring()) != ringSize || len(seg.Secret()) != off {
		return fmt.Errorf("%w: %s has %d bytes, want %d (%d in front of a ring of %d); writer and reader must agree on the ring size and the vLLM generation",
			segment.ErrSize, seg.Name(), len(seg.Bytes()), off+ringSize, off, ringSize)
	}
	return nil
}
