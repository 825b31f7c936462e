package objstore

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmstore"
)

// Pool is the [Store] for Go frontends. An object stays while a [Request] needs it;
// everything else is a cache, from which the store evicts what is cheapest to lose.
//
// A pool is a [shmstore.Store] of vLLM's chunks, which asks the pool when the readers of
// an object are done. The methods of that store are the pool's.
// See docs/decisions.md, "Finish frees, Abort waits".
type Pool struct {
	*bytesStore
	opt     Options
	chunks  chunks
	rereads bool

	// Guarded by the store's lock, under which its owner's methods are called.
	counting

	unnamed atomic.Uint64 // requests that steps.go has begun
}

// bytesStore is the store under a pool. The name keeps it out of the pool's fields.
type bytesStore = shmstore.Store

// CreatePool makes a pool. It makes a segment of its own, and removes it at its end, unless
// there is an Options.Segment. The errors are those of segment.Create.
func CreatePool(o Options) (*Pool, error) {
	o, err := o.resolvePool()
	if err != nil {
		return nil, err
	}
	p, so := newPool(o)
	if _, err := shmstore.Create(so); err != nil {
		return nil, err
	}
	return p, nil
}

// AdoptPool takes over the segment of a pool whose writer was killed, or detached.
// Objects stay, with keys and notes; the secret stays, so handles that are under way stay
// good and workers go on reading; ids go on behind all that were given out. What a
// request of the dead writer may still need is in quarantine until a fence passes or
// the readers are reset. If the engine goes on, it may still run that writer's requests:
// let them end or abort them, and take the fence then.
//
// Where an entry of the sidecar and the bytes of its object don't agree, it is
// dropped, and no handle leads there any more. If a request of the dead writer still
// needs the object, its worker will fail: where Adoption.Dropped is not 0, restart the
// engine unless it has no request.
//
// The options must be the segment's: Name, RingSize, Generation; MaxObjects and
// ReaderSlots are taken from it. Readers may differ if the engine was restarted
// too: call ResetReaders then. The pool owns the segment, as if it had created
// it. Errors are those of segment.Adopt, and an fs.ErrInvalid for the segment of a [FIFO],
// which contains no table of objects.
//
// If AdoptPool itself is killed, the next one begins again.
func AdoptPool(o Options) (*Pool, shmstore.Adoption, error) {
	o, err := o.resolvePool()
	switch {
	case err != nil:
		return nil, shmstore.Adoption{}, err
	case o.Segment != nil:
		return nil, shmstore.Adoption{},
			fmt.Errorf("%w: a pool is adopted by the name of its segment, not by Options.Segment", errInvalid)
	}
	p, so := newPool(o)
	_, a, err := shmstore.Adopt(so)
	if err != nil {
		return nil, a, err
	}
	return p, a, nil
}

// accept refuses a segment that was written in another wire format.
func (p *Pool) accept(version string) error {
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
func newPool(o Options) (*Pool, shmstore.Options) {
	g := o.Generation
	p := &Pool{opt: o, rereads: o.Rereads || g.Rereads && !o.TrustCounts, counting: newCounting(o.Readers, g)}
	so := o.bytes()
	so.Payloads, so.Accept = p.own, p.accept
	return p, so
}

// own is called by the store that the pool is made on.
func (p *Pool) own(s *shmstore.Store) shmstore.PayloadOwner {
	p.bytesStore = s
	p.chunks = chunks{
		seg: s.Segment(), options: serde.Options{Generation: p.opt.Generation, InlineThreshold: p.opt.InlineThreshold},
	}
	return poolOwner{p}
}

// Name implements [Store].
func (p *Pool) Name() string { return p.Segment().Name() }

// Cached implements [Store].
func (p *Pool) Cached(key string) bool {
	_, err := p.Find(key)
	return err == nil
}

// Fence marks a moment in the order of what was sent to the engine. Take it, then send
// a call that every worker executes in order behind everything sent before (a
// collective call; the answer of the engine's loop alone proves nothing, since a batch
// may be on its way to the workers), and call Passed when all have answered: then what
// was aborted before leaves quarantine.
func (p *Pool) Fence() shmstore.Fence { return p.bytesStore.Fence() }

// Evict makes the object under a key go at once if nobody can need it, and reports
// whether it did.
func (p *Pool) Evict(key string) (bool, error) {
	gone, err := p.bytesStore.Evict(key)
	return len(gone) > 0, err
}

// ResetReaders implements [Store].
func (p *Pool) ResetReaders(readers int) error {
	if readers != 0 {
		if err := checkReaders(readers); err != nil {
			return err
		}
	}
	return p.bytesStore.ResetReaders(readers)
}

// State implements [Store].
func (p *Pool) State() (State, error) {
	var st State
	sums, err := p.bytesStore.Inspect(func(r *shmstore.Object, state shmstore.ObjectState) {
		o := record(r)
		st.Objects = append(st.Objects, ObjectState{ObjectState: state, Uses: o.uses, WrittenOff: o.writtenOff})
		st.Objects[len(st.Objects)-1].Reads = p.reads(o)
	})
	st.Used, st.Leases, st.Readers = uint64(sums.Used), sums.Leases, sums.Readers
	st.Quarantined, st.DeadReaders = sums.QuarantinedObjects, sums.DeadReaders
	return st, err
}

// Verify implements [Store].
func (p *Pool) Verify(key string, h serde.Address) error { return verifyCurrent(p, key, h) }

// VerifyItem implements [Store].
func (p *Pool) VerifyItem(key string, it *serde.Item) error {
	return verifyItem(p, &p.chunks, key, it)
}

// current returns the handle of the object under a key.
func (p *Pool) current(key string) (h serde.Address, ok bool, err error) {
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
func (p *Pool) handle(o *shmstore.Object) serde.Address {
	h := p.place(o)
	h.Signature = record(o).signature
	return h
}
