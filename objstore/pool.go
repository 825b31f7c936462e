package objstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmring/segment"
	"github.com/ringcache/ringcache/shmstore"
)

// Pool is the store for Go frontends. An object stays while a [Request] needs it;
// everything else is a cache, from which the store evicts what is cheapest to lose.
// Stock readers can't tell it from a [FIFO]. After a crash [AdoptPool] takes the segment
// over with its objects, keys and handles.
//
// A Pool keeps vLLM's chunks in a [shmstore.Store], which asks it when the readers of an
// object are done. It implements [Store].
type Pool struct {
	opt     Options
	gen     *pycompat.Generation
	chunks  chunks
	counter *counter // nil unless Options.Lock
	store   *shmstore.Store
	rereads bool

	// Guarded by the store's lock, under which its owner's methods are called.
	counting

	unnamed atomic.Uint64 // requests that steps.go has begun
}

// CreatePool makes a segment and the store in it. The errors are those of
// segment.Create.
func CreatePool(o Options) (*Pool, error) {
	p, so, err := newPool(o)
	if err != nil {
		return nil, err
	}
	if _, err := shmstore.Create(so); err != nil {
		return nil, err
	}
	return p, nil
}

// NewPool makes a store in a segment that the caller created, or made over private
// memory. Whatever was in it is forgotten, and where handles are signed a new secret
// makes the old ones invalid; elsewhere see Options.FirstID. The store owns the segment
// from now on and closes it, but does not remove it.
func NewPool(seg *segment.Segment, o Options) (*Pool, error) {
	p, so, err := newPool(o)
	if err != nil {
		return nil, err
	}
	so.Segment = seg
	if _, err := shmstore.Create(so); err != nil {
		return nil, err
	}
	return p, nil
}

// Adoption is what AdoptPool found.
type Adoption = shmstore.Adoption

// AdoptPool takes over the segment of a Pool whose writer was killed, or detached.
// Objects stay, with keys and notes; the secret stays, so handles that are under way stay
// good and workers go on reading; ids go on behind all that were given out. What a
// request of the dead writer may still need is in quarantine until a [Fence] passes or
// the readers are reset. If the engine goes on, it may still run that writer's requests:
// let them end or abort them, and take the fence then.
//
// Where an entry of the sidecar and the bytes of its object don't agree, it is
// dropped, and no handle leads there any more. If a request of the dead writer still
// needs the object, its worker will fail: where Adoption.Dropped is not 0, restart the
// engine unless it has no request.
//
// The options must be the segment's: name, RingSize, Generation; MaxObjects and
// ReaderSlots are taken from it. Readers may differ if the engine was restarted
// too: call ResetReaders then. The store owns the segment, as if it had created
// it. Errors are those of segment.Adopt, and [ErrInvalid] for the segment of a [FIFO],
// which has no table of objects.
//
// If AdoptPool itself is killed, the next one begins again.
func AdoptPool(o Options) (*Pool, Adoption, error) {
	p, so, err := newPool(o)
	if err != nil {
		return nil, Adoption{}, err
	}
	_, a, err := shmstore.Adopt(so)
	if err != nil {
		return nil, a, err
	}
	return p, a, nil
}

// accept refuses a segment that was written in another wire format.
func (p *Pool) accept(version string) error {
	if !sameWire(version, p.gen) {
		return fmt.Errorf("%w: it was written for vLLM %s, not %s; adopt it with that generation, or remove it (ringcache sweep NAME --any-owner --remove) and create it anew", ErrInvalid, version, p.gen.Version)
	}
	return nil
}

// sameWire reports whether a segment written for a version is read by engines of g.
func sameWire(version string, g *pycompat.Generation) bool {
	old, err := pycompat.Lookup(version)
	return version == g.Version || err == nil && old.SameWire(g)
}

// newPool returns a pool that has no store yet, and the options of that.
func newPool(o Options) (*Pool, shmstore.Options, error) {
	o, err := o.resolvePool()
	if err != nil {
		return nil, shmstore.Options{}, err
	}
	g := o.Generation
	if o.Name == "" {
		o.Name = g.SegmentName()
	}
	p := &Pool{
		opt: o, gen: g, rereads: o.Rereads || g.Rereads && !o.TrustCounts, counting: newCounting(o.Readers, g),
		counter: newCounter(o.Lock, o.LockTimeout, o.Readers),
	}
	so := o.bytes()
	so.Payloads, so.Accept = p.own, p.accept
	return p, so, nil
}

// own is called by the store that the pool is made on.
func (p *Pool) own(s *shmstore.Store) shmstore.PayloadOwner {
	p.store = s
	p.chunks = chunks{seg: s.Segment(), options: serde.Options{Generation: p.gen, InlineThreshold: p.opt.InlineThreshold}}
	return poolOwner{p}
}

// Name implements [Store].
func (p *Pool) Name() string { return p.store.Segment().Name() }

// Segment implements [Store].
func (p *Pool) Segment() *segment.Segment { return p.store.Segment() }

// Generation implements [Store].
func (p *Pool) Generation() *pycompat.Generation { return p.gen }

// Cached implements [Store].
func (p *Pool) Cached(key string) bool {
	_, err := p.store.Find(key)
	return err == nil
}

// Remove implements [Store].
func (p *Pool) Remove(key string) bool { return p.store.Remove(key) }

// Clear implements [Store].
func (p *Pool) Clear() error { return p.store.Clear() }

// ResetReaders implements [Store].
func (p *Pool) ResetReaders(readers int) error {
	return resetReaders(p.opt, p.store.ResetReaders, readers)
}

// Stats implements [Store].
func (p *Pool) Stats() (Stats, error) { return p.store.Stats() }

// Holders implements [Store].
func (p *Pool) Holders() []shmstore.Holder { return p.store.Holders() }

// CheckStructure implements [Store].
func (p *Pool) CheckStructure() error { return p.store.CheckStructure() }

// Close implements [Store].
func (p *Pool) Close() error { return p.store.Close() }

// Detach implements [Store].
func (p *Pool) Detach() error { return p.store.Detach() }

// Shutdown implements [Store].
func (p *Pool) Shutdown(ctx context.Context) error { return p.store.Shutdown(ctx) }

// Abandon implements [Store].
func (p *Pool) Abandon() error { return p.store.Abandon() }

// Evict makes the object under a key go at once if nobody can need it, and reports
// whether it did.
func (p *Pool) Evict(key string) (bool, error) {
	gone, err := p.store.Evict(key)
	return len(gone) > 0, err
}

// Fence marks a moment in the order of what was sent to the engine. Take it, then send a
// call that every worker executes in order behind everything sent before (a collective
// call; the answer of the engine's loop alone proves nothing, since a batch may be on its
// way to the workers), and call Passed when all have answered: then what was aborted
// before leaves quarantine.
func (p *Pool) Fence() Fence { return p.store.Fence() }

// Fence is a moment in the order of what was sent, see [Pool.Fence].
type Fence = shmstore.Fence

// State implements [Store].
func (p *Pool) State() (State, error) {
	var st State
	sums, err := p.store.Inspect(func(r *shmstore.Object, state shmstore.ObjectState) {
		o := record(r)
		st.Objects = append(st.Objects, ObjectState{ObjectState: state, Uses: o.uses, WrittenOff: o.writtenOff})
		st.Objects[len(st.Objects)-1].Reads = p.reads(o)
	})
	st.Used, st.Leases, st.Readers = uint64(sums.Used), sums.Leases, sums.Readers
	st.Quarantined, st.DeadReaders = sums.QuarantinedObjects, sums.DeadReaders
	return st, err
}

// Verify implements [Store].
func (p *Pool) Verify(key string, h Handle) error {
	o, err := p.store.Find(key)
	if errors.Is(err, ErrClosed) {
		return err
	}
	if err != nil || p.place(o).Address != h.Address || p.place(o).ID != h.ID {
		return &SignatureError{Key: key}
	}
	if p.gen.Signed {
		return record(o).signature.verify(key, h)
	}
	return nil
}

// handle returns the handle of an object that is in the store.
func (p *Pool) handle(o *shmstore.Object) Handle {
	h := p.place(o)
	if p.gen.Signed {
		h.Signature = bytes.Clone(record(o).signature[:])
	}
	return h
}
