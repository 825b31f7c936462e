package objstore

import (
	"errors"
	"fmt"
	"os"

	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmring/segment"
)

// takeSlot takes a slot if the segment has slots and one is free.
func (r *Reader) takeSlot() error {
	if !sidecar.Matches(r.chunks.seg, r.sidecar) {
		// Left by a segment of this name that is gone.
		err := r.sidecar.Close()
		r.sidecar, r.chunks.sidecar = nil, nil
		return errors.Join(segment.ErrForeign, err)
	}
	g := r.chunks.options.Generation
	if c := r.sidecar.Options(); !sameWire(c.Generation, g) {
		return fmt.Errorf("%w: segment %s was written for vLLM %s, this reader is for %s",
			errInvalid, r.chunks.seg.Name(), c.Generation, g.Version)
	} else if c.Policy != sidecar.Pool {
		return nil
	}
	err := r.chunks.guard(&serde.Address{}, func() (err error) {
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

// hold names the object in the slot, if there is one, before it is looked at. It is
// called in a guard.
// See docs/decisions.md, "Readers of this library hold objects and count at get".
func (r *Reader) hold(u *use) error {
	if r.slot == nil {
		return nil
	}
	place, ok := r.slot.Hold(u.handle.ID)
	if !ok {
		return fmt.Errorf("%w: %s: %d views are open, a reader can have no more; release some",
			ErrBusy, r.chunks.seg.Name(), r.chunks.seg.Holds()-1)
	}
	u.held, u.place = true, place
	return nil
}
