package shmstore

import (
	"crypto/rand"
	"fmt"

	"github.com/ringcache/ringcache/internal/line"
	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/segment"
)

// Create makes a segment and the store in it, or makes the store in Options.Segment: then
// whatever was in the segment is forgotten, and the bytes in front (Options.DataOffset) are new
// and random. The errors are those of segment.Create.
func Create(o Options) (*Store, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if seg := o.Segment; seg != nil {
		return createIn(seg, o)
	}
	seg, err := segment.Create(o.segment())
	if err != nil {
		return nil, err
	}
	s := newStore(seg, o)
	s.owns = true
	return s, nil
}

// createIn makes a store in a segment that the caller created, or made over private memory.
func createIn(seg *segment.Segment, o Options) (*Store, error) {
	if err := o.fits(seg); err != nil {
		return nil, err
	}
	if c := sidecar.Of(seg); c != nil && (c.Options().Policy != sidecar.Pool || c.State().Epoch > 1 || c.State().Clean) {
		return nil, fmt.Errorf("%w: segment %s has a sidecar for the policy %v that was in use; adopt it", errInvalid, seg.Name(), c.Options().Policy)
	}
	s := newStore(seg, o)
	if err := s.durability.guard(func() error { _, err := rand.Read(seg.Secret()); return err }); err != nil {
		return nil, err
	}
	return s, nil
}

// fits returns an error unless a segment that the caller brings has the sizes of the options.
func (o Options) fits(seg *segment.Segment) error {
	if len(seg.Ring()) == o.Size && len(seg.Secret()) == o.DataOffset {
		return nil
	}
	return fmt.Errorf("%w: %s has %d bytes behind %d, want %d behind %d",
		segment.ErrSize, seg.Name(), len(seg.Ring()), len(seg.Secret()), o.Size, o.DataOffset)
}

func newStore(seg *segment.Segment, o Options) *Store {
	s := &Store{opt: o, seg: seg}
	d, sp, l := &s.durability, &s.space, &s.lifetime
	*d = durability{
		seg: seg, sidecar: sidecar.Of(seg), pool: shmring.NewPool(seg.Ring(), o.pool()),
		plain: o.Payloads == nil, fullSums: o.FullSums, offset: o.DataOffset, noHandles: o.NoHandles,
		markedIDs: o.FirstID,
	}
	*l = newLifetime(o)
	*sp = newSpace(o, d.pool)
	l.space, l.durability = sp, d
	sp.lifetime, sp.durability = l, d
	sp.families.space, sp.families.index = sp, l.index
	sp.waiters.Left = func(w *line.Waiter) { sp.forgetTenant(w.Tenant) }
	if d.sidecar != nil {
		sp.maxObjects = d.sidecar.Options().Objects
	}
	if o.Payloads != nil {
		l.owner = o.Payloads(s)
	}
	return s
}
