package agent

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/objstore/upstream"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/shmstore"
)

func (a *Agent) addStore(p *params, open func() (*store, error)) error {
	name := p.str("store")
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
	if p.int("max_object") == 0 {
		p.fail("field \"max_object\": 0 admits nothing")
	}
	rereads := optional(p, "rereads", false) // of the protocol, whatever the generation
	return objstore.Options{
		RingSize: p.int("size"), MaxObjectSize: p.int("max_object"), Readers: p.int("readers"),
		Generation: p.generation(), InlineThreshold: p.threshold(), Dir: a.dir,
		Rereads: rereads, TrustCounts: !rereads, MaxObjects: optional(p, "max_objects", 0),
		Owner:         optional(p, "owner", ""),
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
		if secret = p.hex("secret"); len(secret) != 32 {
			p.fail("field \"secret\": %d bytes, want 32", len(secret))
		}
	}
	var s store
	err := a.addStore(p, func() (*store, error) {
		if !slices.Contains(policies, policy) {
			return nil, unsupportedf("policy %q, want fifo or pool", policy)
		}
		// 64 bytes of the sidecar for each object.
		if err := errors.Join(a.sizeAllowed(o.RingSize),
			a.sizeAllowed(64*min(o.MaxObjects, math.MaxInt/64))); err != nil {
			return nil, err
		}
		if o.Name == "" {
			o.Name = uniqueName()
		}
		var steps upstream.Options
		if err := s.writerLock(p, &steps); err != nil {
			return nil, err
		}
		w, err := s.createWriter(policy, o)
		if err != nil {
			return nil, errors.Join(err, s.closeLock())
		}
		s.w, s.generation = upstream.New(w, steps), o.Generation
		copy(s.segment().Secret(), secret)
		return &s, nil
	})
	if err != nil {
		return nil, err
	}
	return reply{"name": s.segment().Name(), "segment_bytes": len(s.segment().Bytes())}, nil
}

var policies = []string{"fifo", "pool"}

func (s *store) createWriter(policy string, o objstore.Options) (w objstore.Store, err error) {
	if policy == "fifo" {
		return objstore.CreateFIFO(o)
	}
	s.pool, err = objstore.CreatePool(o)
	return s.pool, err
}

func (a *Agent) storeAdopt(p *params) (reply, error) {
	o := a.writerOptions(p)
	o.Name = p.str("name")
	if policy := optional(p, "policy", "pool"); policy != "pool" {
		return nil, unsupportedf("policy %q has no table of objects to adopt", policy)
	}
	var found shmstore.Adoption
	err := a.addStore(p, func() (*store, error) {
		w, a, err := objstore.AdoptPool(o)
		if err != nil {
			return nil, err
		}
		found = a
		return &store{w: upstream.New(w, upstream.Options{}), pool: w, generation: o.Generation}, nil
	})
	return reply{"kept": found.Kept, "dropped": found.Dropped, "in_use": found.InUse, "damaged": found.Damaged}, err
}

// uniqueName keeps stores apart, also when the environment names a segment.
func uniqueName() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return "ringcache_agent_" + hex.EncodeToString(b[:])
}

// writerLock makes the writer count its own reads: lock true under a lock of
// its own, a string under the Python semaphore of that name.
func (s *store) writerLock(p *params, o *upstream.Options) error {
	if !p.has("lock") {
		return nil
	}
	var name string
	if p.fields["lock"][0] == '"' {
		name = p.str("lock")
	} else if !required[bool](p, "lock") {
		return nil
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

func (l ownLock) Unlock() error { <-l; return nil }

func (a *Agent) storeOpen(p *params) (reply, error) {
	name := p.str("name")
	o := objstore.ReaderOptions{
		RingSize: p.int("size"), Readers: p.int("readers"), Generation: p.generation(), Dir: a.dir,
	}
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
