package agent

import (
	"errors"
	"fmt"

	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/objstore/upstream"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/shmring/segment"
)

// store is a writer or a reader. It stays under its name after it was closed,
// so that later operations fail with that reason.
type store struct {
	w    upstream.Steps // nil of a reader
	pool *objstore.Pool // that w is made on; nil for a FIFO and a reader
	r    *objstore.Reader
	lock *pycompat.Semaphore // of a reader, or of a writer that counts
	// generation is a writer's.
	generation *pycompat.Generation
	open       map[string]*objstore.Reservation
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
			return nil, fmt.Errorf("%w: store %q", errClosed, p.str("store"))
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
