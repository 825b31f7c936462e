package shmstore

import (
	"crypto/rand"
	"fmt"

	"github.com/ringcache/ringcache/internal/evict"
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
	if c := seg.Sidecar(); c != nil && (c.Options().Policy != sidecar.Pool || c.State().Epoch > 1 || c.State().Clean) {
		return nil, fmt.Errorf("%w: segment %s has a sidecar for the policy %v that was in use; adopt it", errInvalid, seg.Name(), c.Options().Policy)
	}
	s := newStore(seg, o)
	if err := s.guard(func() error { _, err := rand.Read(seg.Secret()); return err }); err != nil {
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
	s := &Store{
		opt: o, owner: uncounted{}, seg: seg, sidecar: seg.Sidecar(), readers: o.Readers,
		pool:  shmring.NewPool(seg.Ring(), o.pool()),
		index: map[string]*Object{}, pending: map[string]*Object{},
		pinned: map[*Object]struct{}{}, requests: map[string]*Request{},
		evictor: evict.New(), markedIDs: o.FirstID,
		ledger: ledger{
			idle: idleSet{kind: idleOfStore}, tenants: map[string]*tenant{}, families: families{kin: map[string]*kin{}},
		},
	}
	s.room = int64(s.pool.Largest()) // nothing is in it yet
	if s.sidecar != nil {
		s.maxObjects = s.sidecar.Options().Objects
	}
	s.waiters.Left = func(w *line.Waiter) { s.forgetTenant(w.Tenant) }
	if o.Payloads != nil {
		s.owner = o.Payloads(s)
	}
	return s
}
