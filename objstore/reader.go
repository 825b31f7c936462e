package objstore

import (
	"context"

	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmring"
)

// Reader looks at the objects of a segment that another process writes.
type Reader struct {
	sv      segmentView
	gen     pycompat.Generation
	counter *counter // nil: observes
}

// Open attaches to the segment name. The errors are those of shmring.Attach.
func Open(name string, o ReaderOptions) (*Reader, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	seg, err := shmring.Attach(shmring.SegmentOptions{
		Name: name, RingSize: o.RingSize, DataOffset: o.Generation.OrNewest().DataOffset, Dir: o.Dir,
		ReadOnly: o.Lock == nil,
	})
	if err != nil {
		return nil, err
	}
	return newReader(seg, o), nil
}

// NewReader reads from a segment that the caller attached, or made over private
// memory. The reader owns it from now on.
func NewReader(seg *shmring.Segment, o ReaderOptions) (*Reader, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if err := matches(seg, o.RingSize, o.Generation); err != nil {
		return nil, err
	}
	return newReader(seg, o), nil
}

func newReader(seg *shmring.Segment, o ReaderOptions) *Reader {
	g := o.Generation.OrNewest()
	return &Reader{
		sv:      segmentView{seg, serde.Options{Generation: g}},
		gen:     g,
		counter: newCounter(o.Lock, o.LockTimeout, o.Readers),
	}
}

// Get returns a view of the object at a handle. key is the object's cache key;
// it is part of the signature, and not used in generations without one. The
// caller must Release the view, which also counts the read.
//
// Errors: [SignatureError], [StaleError], [CorruptError], [ErrClosed]. A failed
// Get counts nothing, so that the writer keeps the chunk, as upstream has it.
func (r *Reader) Get(h Handle, key string) (*View, error) {
	if err := r.sv.seg.Hold(); err != nil {
		return nil, err
	}
	v, err := r.get(h, key)
	if err != nil {
		r.sv.seg.Release()
		return nil, err
	}
	return &View{sv: r.sv, handle: h, value: v, counter: r.counter}, nil
}

func (r *Reader) get(h Handle, key string) (serde.Value, error) {
	if err := r.verify(h, key); err != nil {
		return nil, err
	}
	return r.sv.read(h)
}

// Verify checks the signature of a handle for a key without reading the object.
// It fails with [SignatureError], and does nothing in generations without
// signatures.
func (r *Reader) Verify(key string, h Handle) error {
	if err := r.sv.seg.Hold(); err != nil {
		return err
	}
	defer r.sv.seg.Release()
	return r.verify(h, key)
}

// Segment returns the segment, for its name and its bytes.
func (r *Reader) Segment() *shmring.Segment { return r.sv.seg }

// Generation returns the generation that the store is read in.
func (r *Reader) Generation() pycompat.Generation { return r.gen }

func (r *Reader) verify(h Handle, key string) error {
	if !r.gen.Signed {
		return nil
	}
	return r.sv.guard(h, func() error { return verify(r.sv.seg.Secret(), key, h) })
}

// Touch says that the object at a handle will be read later in the same
// request. vLLM's workers touch every item of a request before they get the
// first. What it does depends on the generation: before 0.12 nothing; up to
// 0.31 it counts a read if every reader has read the object once; from 0.32 on
// it only verifies the handle. The errors are those of Get, and ctx's while it
// waits for the lock.
func (r *Reader) Touch(ctx context.Context, key string, h Handle) error {
	if err := r.sv.seg.Hold(); err != nil {
		return err
	}
	defer r.sv.seg.Release()
	return touch(ctx, r.sv, r.gen, r.counter, h, func() error { return r.verify(h, key) })
}

// touch is the touch of whoever has a lock, a reader or such a writer.
func touch(ctx context.Context, sv segmentView, g pycompat.Generation, c *counter, h Handle, verify func() error) error {
	switch g.Counting {
	case pycompat.CountTouch:
		if c == nil {
			return nil
		}
		return sv.guard(h, func() error { return c.touch(ctx, sv, h) })
	case pycompat.CountPerAddress:
		if err := verify(); err != nil {
			return err
		}
		return sv.guard(h, func() error {
			_, err := sv.locate(h)
			return err
		})
	}
	return nil
}

// Close unmaps the segment. It fails with [ErrBusy] while a view is open, and
// does nothing when called again.
func (r *Reader) Close() error { return r.sv.seg.Close() }

// matches checks a segment that a caller brings against its options.
func matches(seg *shmring.Segment, ringSize int, g pycompat.Generation) error {
	if off := g.OrNewest().DataOffset; len(seg.Ring()) != ringSize || len(seg.Secret()) != off {
		return &shmring.SizeError{Name: seg.Name(), Got: int64(seg.Size()), Ring: ringSize, DataOffset: off}
	}
	return nil
}
