package shmstore

import (
	"errors"
	"fmt"
	"iter"

	"github.com/ringcache/ringcache/internal/payload"
)

// Format returns the format of the store, see [Options.Format], with its alignment if that is not 64.
func (r *Reader) Format() string { return r.sidecar.Options().Generation }

// List lists the payloads that are there, in no order, with keys and notes, while the writer goes on.
// Payloads that come or go meanwhile may be in the list. A payload stays only while a view
// of its handle is open. A payload that is damaged is a [CorruptError], and the list goes on.
func (r *Reader) List() iter.Seq2[*Object, error] {
	return func(yield func(*Object, error) bool) {
		for i := range r.sidecar.Options().Objects {
			o, err := r.look(i)
			if errors.Is(err, ErrStale) || o == nil && err == nil {
				continue
			}
			if !yield(o, err) {
				return
			}
		}
	}
}

// look describes the payload of an entry of the sidecar's table, nil if there is none.
func (r *Reader) look(i int) (*Object, error) {
	if err := r.seg.Hold(); err != nil {
		return nil, err
	}
	defer r.seg.Release()
	o := &Object{}
	err := r.guard(func() error {
		e := r.sidecar.LookAtEntry(i)
		if e.Free {
			o = nil
			return nil
		}
		o.setRecord(e.Record)
		o.locate(len(r.seg.Secret()), r.lead == payload.Lead)
		v := &View{r: r, h: o.Handle(), place: -1}
		err := v.open() // so that nothing overwrites the description while it is read
		if err == nil {
			err = r.describe(o)
		}
		v.end.Do(func() { // as Release, within this hold
			if v.place >= 0 {
				r.slot.Release(v.place)
			}
		})
		if err != nil && !r.sidecar.Has(e) {
			return fmt.Errorf("%w: it went while it was looked at", ErrStale)
		}
		return err
	})
	return o, err
}

// describe reads the description of an object whose chunk stays.
func (r *Reader) describe(o *Object) error {
	_, b, err := payload.Locate(r.seg.Ring(), o.record(), r.lead == payload.Lead)
	var text payload.Description
	if err == nil {
		text, err = payload.Parse(b)
	}
	if err != nil {
		return &CorruptError{Segment: r.seg.Name(), Address: o.chunk.address, ID: o.chunk.id, Err: err}
	}
	o.setDescription(text, false)
	return nil
}

// Verify compares the payload of the view with the checksum in the sidecar, which [Adopt] compares, too: of large
// payloads that is one of samples, unless the store has FullSums. o is the object from [Reader.List] whose
// handle the view was made of. A difference is a [CorruptError].
func (v *View) Verify(o *Object) error {
	r := v.r
	return r.guard(func() error {
		if _, err := payload.Verify(r.seg.Ring(), o.record(), r.lead == payload.Lead); err != nil {
			return &CorruptError{Segment: r.seg.Name(), Address: o.chunk.address, ID: o.chunk.id, Err: err}
		}
		return nil
	})
}
