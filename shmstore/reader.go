package shmstore

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/ringcache/ringcache/internal/fault"
	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/internal/payload"
	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/segment"
)

// ReaderOptions say what store a [Reader] expects. Its size is in the sidecar.
type ReaderOptions struct {
	// Owned reports that the store has a [PayloadOwner], so that a payload is the whole chunk
	// behind its header. Views count no read.
	Owned bool
	// Dir is the directory of shared memory, /dev/shm if empty.
	Dir string
}

// Reader looks at the payloads of a store that another process writes. It has a slot in the sidecar: what
// it looks at stays where it is, whatever else ends. The slot is free when the process dies.
//
// Its methods may be called by any goroutine.
type Reader struct {
	seg     *segment.Segment
	sidecar *sidecar.File
	slot    *sidecar.Slot
	lead    int // bytes from the begin of a chunk to its payload

	closing sync.Once
	err     error // of the end of sidecar
}

// Open attaches to the segment name and takes a slot. Errors are those of
// segment.Attach; [segment.ErrForeign] if there is no sidecar, and [shmring.ErrCorrupt] if it is
// damaged; and [segment.ErrBusy] if all slots are taken.
func Open(name string, o ReaderOptions) (*Reader, error) {
	c, err := sidecar.Open(o.Dir, name)
	if err != nil {
		return nil, err
	}
	seg, err := segment.Attach(segment.Options{
		Name: name, RingSize: c.Options().RingSize, DataOffset: c.Options().DataOffset, Dir: o.Dir, ReadOnly: true,
	})
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	r := &Reader{seg: seg, sidecar: c, lead: payload.Lead}
	if o.Owned {
		r.lead = shmring.HeaderSize
	}
	if err := r.takeSlot(name); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (r *Reader) takeSlot(name string) error {
	if !sidecar.Matches(r.seg, r.sidecar) { // left by a segment of this name that is gone
		return fmt.Errorf("%w: the sidecar of %s belongs to another segment", sidecar.ErrForeign, name)
	}
	return r.guard(func() (err error) {
		r.slot, err = r.sidecar.TakeSlot(os.Getpid())
		return err
	})
}

func (r *Reader) guard(f func() error) error {
	err := fault.Guard(f)
	if errors.Is(err, fault.ErrFault) {
		return &CorruptError{Segment: r.seg.Name(), Err: sidecar.Explain(r.seg, err, r.sidecar)}
	}
	return err
}

// View is a payload seen in place.
type View struct {
	r       *Reader
	h       Handle
	place   int // in the slot
	payload []byte
	end     sync.Once
}

// Get returns a view of the payload of a handle, which stays there until Release. It
// fails with [ErrStale], with [CorruptError] for a handle that leads out of the
// segment, with [segment.ErrBusy] if too many views are open, and with fs.ErrClosed.
func (r *Reader) Get(h Handle) (*View, error) {
	if err := r.seg.Hold(); err != nil {
		return nil, err
	}
	v := &View{r: r, h: h, place: -1}
	err := r.guard(func() error { return v.open() })
	if err != nil {
		v.Release()
		return nil, err
	}
	return v, nil
}

// open names the payload in the slot, and compares the id after that.
func (v *View) open() error {
	m := v.r.seg.Bytes()
	if v.h.Offset < uint64(v.r.lead) || v.h.Offset > uint64(len(m)) || v.h.Length > uint64(len(m))-v.h.Offset || v.h.ID >= shmring.IDLimit {
		return &CorruptError{Segment: v.r.seg.Name(), Address: v.h.Offset, ID: v.h.ID, Err: fmt.Errorf("%d bytes are not in a segment of %d", v.h.Length, len(m))}
	}
	place, ok := v.r.slot.Hold(v.h.ID)
	if !ok {
		return fmt.Errorf("%w: %s: too many views are open; release some", segment.ErrBusy, v.r.seg.Name())
	}
	v.place = place
	if id := v.id(); id != v.h.ID {
		return staleError(v.h, id)
	}
	v.payload = m[v.h.Offset : v.h.Offset+v.h.Length : v.h.Offset+v.h.Length]
	return nil
}

// id is the one in front of the payload now.
func (v *View) id() uint32 { return mem.Load32(v.r.seg.Bytes()[v.h.Offset-uint64(v.r.lead):]) }

// Bytes returns the payload. It must not be written to, and not be used after Release.
func (v *View) Bytes() []byte { return v.payload }

// Check reports whether the bytes are still the payload's, for use after they were
// read: the slot keeps the writer from using them again, so an error means that
// something else wrote to the segment. It must not be called after Release.
func (v *View) Check() error {
	return v.r.guard(func() error {
		mem.Fence()
		// The writer takes the id away for a moment while it looks who holds the chunk.
		if id := v.id(); id != v.h.ID && id != shmring.DeadID {
			return staleError(v.h, id)
		}
		return nil
	})
}

// Release ends the view. Releasing twice is fine.
func (v *View) Release() {
	v.end.Do(func() {
		if v.place >= 0 {
			_ = v.r.guard(func() error { v.r.slot.Release(v.place); return nil })
		}
		v.r.seg.Release()
	})
}

// Segment returns the segment, which belongs to the reader.
func (r *Reader) Segment() *segment.Segment { return r.seg }

// Close gives the slot back and unmaps the segment. It fails with [segment.ErrBusy] while a view
// is open, and does nothing when called again.
func (r *Reader) Close() error {
	if err := r.seg.Close(); err != nil {
		return err
	}
	r.closing.Do(func() {
		var errs []error
		if r.slot != nil {
			errs = append(errs, r.guard(r.slot.Close))
		}
		r.err = errors.Join(append(errs, r.sidecar.Close())...)
	})
	return r.err
}
