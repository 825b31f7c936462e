package objstore

import (
	"bytes"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmstore"
)

// poolStore is the store for Go frontends. An object stays while a [Request] needs it;
// everything else is a cache, from which the store evicts what is cheapest to lose.
//
// A pool keeps vLLM's chunks in a [shmstore.Store], which asks the pool when the readers of
// an object are done. Most methods of [Store] are that store's.
type poolStore struct {
	*shmstore.Store
	opt     Options
	chunks  chunks
	rereads bool

	// Guarded by the store's lock, under which its owner's methods are called.
	counting

	unnamed atomic.Uint64 // requests that steps.go has begun
}

// createPool makes a pool of options that were resolved.
func createPool(o Options) (*poolStore, error) {
	p, so := newPool(o)
	if _, err := shmstore.Create(so); err != nil {
		return nil, err
	}
	return p, nil
}

// adopt is [Adopt].
func adopt(o Options) (*poolStore, shmstore.Adoption, error) {
	o, err := o.resolve()
	switch {
	case err != nil:
		return nil, shmstore.Adoption{}, err
	case o.FIFO || o.Segment != nil:
		return nil, shmstore.Adoption{}, fmt.Errorf("%w: only a pool can be adopted, by the name of its segment", errInvalid)
	}
	p, so := newPool(o)
	_, a, err := shmstore.Adopt(so)
	if err != nil {
		return nil, a, err
	}
	return p, a, nil
}

// accept refuses a segment that was written in another wire format.
func (p *poolStore) accept(version string) error {
	if !sameWire(version, p.opt.Generation) {
		return fmt.Errorf("%w: it was written for vLLM %s, not %s; adopt it with that generation, or remove it (ringcache sweep NAME --any-owner --remove) and create it anew", errInvalid, version, p.opt.Generation.Version)
	}
	return nil
}

// sameWire reports whether a segment written for a version is read by engines of g.
func sameWire(version string, g *pycompat.Generation) bool {
	old, err := pycompat.Lookup(version)
	return version == g.Version || err == nil && old.SameWire(g)
}

// newPool returns a pool that has no store yet, and the options of that. The options were
// resolved.
func newPool(o Options) (*poolStore, shmstore.Options) {
	g := o.Generation
	p := &poolStore{opt: o, rereads: o.Rereads || g.Rereads && !o.TrustCounts, counting: newCounting(o.Readers, g)}
	so := o.bytes()
	so.Payloads, so.Accept = p.own, p.accept
	return p, so
}

// own is called by the store that the pool is made on.
func (p *poolStore) own(s *shmstore.Store) shmstore.PayloadOwner {
	p.Store = s
	p.chunks = chunks{seg: s.Segment(), options: serde.Options{Generation: p.opt.Generation, InlineThreshold: p.opt.InlineThreshold}}
	return poolOwner{p}
}

// Name implements [Store].
func (p *poolStore) Name() string { return p.Segment().Name() }

// Cached implements [Store].
func (p *poolStore) Cached(key string) bool {
	_, err := p.Find(key)
	return err == nil
}

// Evict implements [Store].
func (p *poolStore) Evict(key string) (bool, error) {
	gone, err := p.Store.Evict(key)
	return len(gone) > 0, err
}

// ResetReaders implements [Store].
func (p *poolStore) ResetReaders(readers int) error {
	if readers != 0 {
		if err := checkReaders(readers); err != nil {
			return err
		}
	}
	return p.Store.ResetReaders(readers)
}

// State implements [Store].
func (p *poolStore) State() (State, error) {
	var st State
	sums, err := p.Store.Inspect(func(r *shmstore.Object, state shmstore.ObjectState) {
		o := record(r)
		st.Objects = append(st.Objects, ObjectState{ObjectState: state, Uses: o.uses, WrittenOff: o.writtenOff})
		st.Objects[len(st.Objects)-1].Reads = p.reads(o)
	})
	st.Used, st.Leases, st.Readers = uint64(sums.Used), sums.Leases, sums.Readers
	st.Quarantined, st.DeadReaders = sums.QuarantinedObjects, sums.DeadReaders
	return st, err
}

// Verify implements [Store].
func (p *poolStore) Verify(key string, h serde.Address) error { return verifyCurrent(p, key, h) }

// VerifyItem implements [Store].
func (p *poolStore) VerifyItem(key string, it *serde.Item) error {
	return verifyItem(p, p.chunks, key, it)
}

// current returns the handle of the object under a key.
func (p *poolStore) current(key string) (h serde.Address, ok bool, err error) {
	o, err := p.Find(key)
	if errors.Is(err, ErrNotFound) {
		return h, false, nil
	}
	if err == nil {
		h = p.handle(o)
	}
	return h, err == nil, err
}

// handle returns the handle of an object that is in the store.
func (p *poolStore) handle(o *shmstore.Object) serde.Address {
	h := p.place(o)
	if p.opt.Generation.Signed {
		h.Signature = bytes.Clone(record(o).signature[:])
	}
	return h
}
