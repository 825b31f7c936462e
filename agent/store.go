package agent

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/objstore/upstream"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/shmring/segment"
)

// store is a writer or a reader. It stays under its name after it was closed,
// so that later operations say so.
type store struct {
	w    upstream.Steps // nil of a reader
	pool *objstore.Pool // nil of a FIFO
	r    *objstore.Reader
	lock *pycompat.Semaphore // of a reader, or of a writer that counts
	open map[string]*objstore.Reservation
	// requests are those that were begun and not ended, by id.
	requests map[string]objstore.Request

	closed bool
}

func (s *store) segment() *segment.Segment {
	if s.w != nil {
		return s.w.Segment()
	}
	return s.r.Segment()
}

func (s *store) close() error {
	if s.w != nil {
		return s.end(s.w.Close)
	}
	return s.end(s.r.Close)
}

// end closes the store after everything that is open in it.
func (s *store) end(end func() error) error {
	for _, r := range s.open {
		r.Discard()
	}
	clear(s.open)
	for _, r := range s.requests {
		r.Rollback()
		r.Abort()
	}
	clear(s.requests)
	err := errors.Join(end(), s.closeLock())
	s.closed = err == nil
	return err
}

func (a *Agent) storeOps() map[string]operation {
	writer := func(f func(*params, *store) (reply, error)) operation {
		return a.onStore(func(p *params, s *store) (reply, error) {
			if s.w == nil {
				return nil, unsupportedf("%s is for the writer; this store was opened for reading", p.str("op"))
			}
			return f(p, s)
		})
	}
	return map[string]operation{
		"store.create":          a.storeCreate,
		"store.open":            a.storeOpen,
		"store.put":             writer(storePut),
		"store.cached":          writer(storeCached),
		"store.lookup":          writer(storeLookup),
		"store.signature":       writer(storeSignature),
		"store.verify":          a.onStore(storeVerify),
		"store.get":             a.onStore(storeGet),
		"store.touch":           a.onStore(storeTouch),
		"store.release_touches": writer(func(_ *params, s *store) (reply, error) { s.w.ReleaseTouches(); return nil, nil }),
		"store.free_unused":     writer(storeFreeUnused),
		"store.clear":           writer(func(_ *params, s *store) (reply, error) { return nil, s.w.Clear() }),
		"store.close":           a.onClosable(func(_ *params, s *store) (reply, error) { return nil, s.close() }),
		"store.unlink":          a.onClosable(storeUnlink),
		"store.reserve":         writer(storeReserve),
		"store.fill":            writer(storeFill),
		"store.publish":         writer(storePublish),
		"store.discard":         writer(storeDiscard),
		"store.begin":           writer(storeBegin),
		"store.commit":          writer(storeCommit),
		"store.rollback":        writer(ending(objstore.Request.Rollback)),
		"store.finish":          writer(ending(objstore.Request.Finish)),
		"store.abort":           writer(ending(objstore.Request.Abort)),
		"store.fence":           writer(storeFence),
		"store.reset_readers":   writer(storeResetReaders),
		"store.evict":           writer(storeEvict),
		"store.detach":          a.onClosable(storeDetach),
		"store.adopt":           a.storeAdopt,
		"store.state":           writer(storeState),
		"store.peek":            a.onStore(storePeek),
	}
}

// onStore is for operations on a store that was not closed.
func (a *Agent) onStore(f func(*params, *store) (reply, error)) operation {
	return a.onClosable(func(p *params, s *store) (reply, error) {
		if s.closed {
			return nil, fmt.Errorf("%w: store %q", objstore.ErrClosed, p.str("store"))
		}
		return f(p, s)
	})
}

func (a *Agent) onClosable(f func(*params, *store) (reply, error)) operation {
	return func(p *params) (reply, error) {
		name := p.str("store")
		s, ok := a.stores[name]
		if p.err == nil && !ok {
			p.fail("no store %q", name)
		}
		if p.err != nil {
			return nil, p.err
		}
		return f(p, s)
	}
}

func (a *Agent) addStore(p *params, open func() (*store, error)) error {
	name := p.str("store")
	if p.err != nil {
		return p.err
	}
	if old, ok := a.stores[name]; ok && !old.closed {
		return invalidf("store %q exists", name)
	}
	s, err := open()
	if err != nil {
		return err
	}
	s.open, s.requests = map[string]*objstore.Reservation{}, map[string]objstore.Request{}
	a.stores[name] = s
	return nil
}

// writerOptions reads what store.create and store.adopt have in common.
func (a *Agent) writerOptions(p *params) objstore.Options {
	if p.int("max_object") == 0 && p.err == nil {
		p.fail("field \"max_object\": 0 admits nothing")
	}
	rereads := optional(p, "rereads", false) // of the protocol, whatever the generation
	return objstore.Options{
		RingSize: p.int("size"), MaxObjectSize: p.int("max_object"), Readers: p.int("readers"),
		Generation: p.generation(), InlineThreshold: p.threshold(), Dir: a.dir,
		Rereads: rereads, TrustCounts: !rereads, MaxObjects: optional(p, "max_objects", 0), Owner: optional(p, "owner", ""),
		Quota:         int64(optional(p, "quota", 0)),
		QuarantineTTL: time.Duration(optional(p, "quarantine_ttl", 0.0) * float64(time.Second)),
	}
}

func (a *Agent) storeCreate(p *params) (reply, error) {
	o := a.writerOptions(p)
	o.Name, o.Align = optional(p, "name", ""), optional(p, "align", 0)
	policy := optional(p, "policy", "fifo")
	var secret []byte
	if p.has("secret") {
		if secret = p.hex("secret"); p.err == nil && len(secret) != 32 {
			p.fail("field \"secret\": %d bytes, want 32", len(secret))
		}
	}
	var s store
	err := a.addStore(p, func() (*store, error) {
		if !slices.Contains(policies, policy) {
			return nil, unsupportedf("policy %q, want fifo or pool", policy)
		}
		// 64 bytes of the sidecar for each object.
		if err := errors.Join(a.sizeAllowed(o.RingSize), a.sizeAllowed(64*min(o.MaxObjects, math.MaxInt/64))); err != nil {
			return nil, err
		}
		if o.Name == "" {
			o.Name = uniqueName()
		}
		if err := s.writerLock(p, &o); err != nil {
			return nil, err
		}
		if err := s.create(policy, o); err != nil {
			return nil, errors.Join(err, s.closeLock())
		}
		copy(s.segment().Secret(), secret)
		return &s, nil
	})
	if err != nil {
		return nil, err
	}
	return reply{"name": s.segment().Name(), "segment_bytes": len(s.segment().Bytes())}, nil
}

var policies = []string{"fifo", "pool"}

// create makes the store of a writer.
func (s *store) create(policy string, o objstore.Options) error {
	if policy == "fifo" {
		f, err := objstore.CreateFIFO(o)
		if err != nil {
			return err
		}
		s.w = upstream.FIFO(f)
		return nil
	}
	p, err := objstore.CreatePool(o)
	if err != nil {
		return err
	}
	s.w, s.pool = upstream.Pool(p), p
	return nil
}

func (a *Agent) storeAdopt(p *params) (reply, error) {
	o := a.writerOptions(p)
	o.Name = p.str("name")
	if policy := optional(p, "policy", "pool"); p.err == nil && policy != "pool" {
		return nil, unsupportedf("policy %q has no table of objects to adopt", policy)
	}
	var found objstore.Adoption
	err := a.addStore(p, func() (*store, error) {
		p, a, err := objstore.AdoptPool(o)
		if err != nil {
			return nil, err
		}
		found = a
		return &store{w: upstream.Pool(p), pool: p}, nil
	})
	if err != nil {
		return nil, err
	}
	return reply{"kept": found.Kept, "dropped": found.Dropped, "in_use": found.InUse, "damaged": found.Damaged}, nil
}

// uniqueName keeps stores apart, also when the environment names a segment.
func uniqueName() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return "ringcache_agent_" + hex.EncodeToString(b[:])
}

// writerLock makes the writer count its own reads: lock true under a lock of
// its own, a string under the Python semaphore of that name.
func (s *store) writerLock(p *params, o *objstore.Options) error {
	if !p.has("lock") {
		return nil
	}
	var name string
	if p.fields["lock"][0] == '"' {
		name = p.str("lock")
	} else if !required[bool](p, "lock") {
		return p.err
	}
	if p.err != nil {
		return p.err
	}
	if name == "" {
		o.Lock = make(ownLock, 1)
		return nil
	}
	return s.openLock(name, func(l objstore.Locker) { o.Lock = l })
}

func (s *store) openLock(name string, use func(objstore.Locker)) error {
	l, err := pycompat.OpenSemaphore(name)
	if err != nil {
		return err
	}
	s.lock = l
	use(l)
	return nil
}

func (s *store) closeLock() error {
	if s.lock == nil {
		return nil
	}
	return s.lock.Close()
}

// ownLock is a lock that no other process takes.
type ownLock chan struct{}

func (l ownLock) Lock(context.Context) error { l <- struct{}{}; return nil }
func (l ownLock) Unlock() error              { <-l; return nil }

func (a *Agent) storeOpen(p *params) (reply, error) {
	name := p.str("name")
	o := objstore.ReaderOptions{RingSize: p.int("size"), Readers: p.int("readers"), Generation: p.generation(), Dir: a.dir}
	_ = optional(p, "max_object", 0) // a reader has no use for it, but a wrong type is an error
	lock := optional(p, "lock", "")
	return nil, a.addStore(p, func() (*store, error) {
		var s store
		if p.has("lock") {
			if err := s.openLock(lock, func(l objstore.Locker) { o.Lock = l }); err != nil {
				return nil, err
			}
		}
		var err error
		if s.r, err = objstore.Open(name, o); err != nil {
			return nil, errors.Join(err, s.closeLock())
		}
		return &s, nil
	})
}
