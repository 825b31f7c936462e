package agent

import (
	"fmt"
	"io/fs"

	"github.com/ringcache/ringcache/objstore"
)

// request returns the open request that a line names, nil if it names none and
// need not.
func (s *store) request(p *params, needed bool) objstore.Request {
	if !needed && !p.has("request") {
		return nil
	}
	id := p.str("request")
	r, ok := s.requests[id]
	if !ok && (needed || s.pool != nil) {
		p.fail("request %q was not begun, or has ended", id)
	}
	return r
}

func putOptions(p *params) objstore.PutOptions {
	return objstore.PutOptions{Tenant: optional(p, "tenant", "")}
}

func storeBegin(p *params, s *store) (reply, error) {
	id := p.str("request")
	r, err := s.w.Begin(id)
	if err != nil {
		return nil, err
	}
	s.requests[id] = r
	return nil, nil
}

func storeCommit(p *params, s *store) (reply, error) {
	return nil, s.request(p, true).Commit()
}

// ending is an operation that ends a request. One that is in another state than
// the operation needs is an error here, though the library lets it pass so that
// it can be deferred.
func ending(end func(objstore.Request)) func(*params, *store) (reply, error) {
	return func(p *params, s *store) (reply, error) {
		r := s.request(p, true)
		if end(r); !r.Ended() {
			return nil, invalidf("request %q: rollback is for requests that were not committed, finish and abort for those that were", r.ID())
		}
		delete(s.requests, r.ID())
		return nil, nil
	}
}

func storeResetReaders(p *params, s *store) (reply, error) {
	if err := s.w.ResetReaders(optional(p, "readers", 0)); err != nil {
		return nil, err
	}
	for id, r := range s.requests {
		if r.Ended() {
			delete(s.requests, id)
		}
	}
	return nil, nil
}

func storeEvict(p *params, s *store) (reply, error) {
	key := p.str("key")
	if s.pool == nil {
		return nil, fmt.Errorf("%w: in a FIFO only the oldest object can go, once it was read", fs.ErrInvalid)
	}
	evicted, err := s.pool.Evict(key)
	return reply{"evicted": evicted}, err
}

func storeFence(_ *params, s *store) (reply, error) {
	if s.pool != nil { // nothing waits for a fence in a FIFO
		s.pool.Fence().Passed()
	}
	return nil, nil
}

// storeDetach closes a writer and leaves its segment to be adopted.
func storeDetach(p *params, s *store) (reply, error) {
	if s.w == nil {
		return nil, unsupportedf("only a writer can leave its segment")
	}
	if s.closed {
		return nil, nil
	}
	return nil, s.end(s.w.Detach)
}
