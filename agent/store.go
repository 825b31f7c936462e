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
	writer := func(f func(*params, *store) (reply, error)) func(*params) (reply, error) {
		return a.onStore(func(p *params, s *store) (reply, error) {
			if s.w == nil {
				return nil, unsupportedf("%s is for the writer; this store was opened for reading", p.str("op"))
			}
			return f(p, s)
		})
	}
	const writerFields = "store size max_object readers generation treat_as name policy threshold " +
		"rereads quarantine_ttl max_objects quota owner"
	return map[string]operation{
		"store.create":          {writerFields + " secret lock align", a.storeCreate},
		"store.open":            {"store name size max_object readers generation treat_as lock", a.storeOpen},
		"store.put":             {"store key value request tenant", writer(storePut)},
		"store.cached":          {"store key", writer(storeCached)},
		"store.lookup":          {"store key request", writer(storeLookup)},
		"store.signature":       {"store key", writer(storeSignature)},
		"store.verify":          {"store key address id signature", a.onStore(storeVerify)},
		"store.get":             {"store address id key signature", a.onStore(storeGet)},
		"store.touch":           {"store key address id signature", a.onStore(storeTouch)},
		"store.release_touches": {"store", writer(storeReleaseTouches)},
		"store.free_unused":     {"store", writer(storeFreeUnused)},
		"store.clear":           {"store", writer(func(_ *params, s *store) (reply, error) { return nil, s.w.Clear() })},
		"store.close":           {"store", on("store", a.stores, storeClose)},
		"store.unlink":          {"store", on("store", a.stores, storeUnlink)},
		"store.reserve":         {"store key value request tenant", writer(storeReserve)},
		"store.fill":            {"store key field offset hex", writer(storeFill)},
		"store.publish":         {"store key", writer(storePublish)},
		"store.discard":         {"store key", writer(storeDiscard)},
		"store.begin":           {"store request", writer(storeBegin)},
		"store.commit":          {"store request", writer(storeCommit)},
		"store.rollback":        {"store request", writer(ending(objstore.Request.Rollback))},
		"store.finish":          {"store request", writer(ending(objstore.Request.Finish))},
		"store.abort":           {"store request", writer(ending(objstore.Request.Abort))},
		"store.fence":           {"store", writer(storeFence)},
		"store.reset_readers":   {"store readers", writer(storeResetReaders)},
		"store.evict":           {"store key", writer(storeEvict)},
		"store.detach":          {"store", on("store", a.stores, storeDetach)},
		"store.adopt":           {writerFields, a.storeAdopt},
		"store.state":           {"store", writer(storeState)},
		"store.peek":            {"store offset length", a.onStore(storePeek)},
	}
}

// onStore is for operations on a store that was not closed.
func (a *Agent) onStore(f func(*params, *store) (reply, error)) func(*params) (reply, error) {
	return on("store", a.stores, func(p *params, s *store) (reply, error) {
		if s.closed {
			return nil, fmt.Errorf("%w: store %q", errClosed, p.str("store"))
		}
		return f(p, s)
	})
}
