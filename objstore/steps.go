package objstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/ringcache/ringcache/objstore/internal/door"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmstore"
)

// steps are vLLM's steps on a store. Package upstream is where they are documented.
//
// A handle without a request is one of a request that is committed and aborted at once:
// its object waits for its reads, or for a fence.
type steps struct {
	Store
	in      stepped
	chunks  chunks
	counter *counter
}

// stepped is what the steps need of a store besides its requests.
type stepped interface {
	// unnamedRequest begins a request of its own for one handle.
	unnamedRequest() (stepRequest, error)
	// touch protects the object under a key until untouch or untouchAll.
	touch(key string) (bool, error)
	untouch(key string)
	untouchAll()
	freeUnused() ([]uint32, error)
	evict(key string) (bool, error)
	// object returns the handle of the object under a key.
	object(key string) (h Handle, ok bool, err error)
	// hold keeps the object of an id, if there is one, until the function is called.
	hold(h Handle) (release func(), err error)
}

// stepRequest is a request whose keys may be empty, and whose uses raw.
type stepRequest interface {
	Request
	putter
	lookup(key string, n int) (Handle, error)
}

// Steps is for package upstream.
func (p *Pool) Steps(door.Key) steps { return steps{p, poolSteps{p}, p.chunks, p.counter} }

// Steps is for package upstream.
func (f *FIFO) Steps(door.Key) steps { return steps{f, fifoSteps{f}, f.chunks, f.counter} }

// send ends a request whose one handle is given out.
func send(r Request, h Handle, err error) (Handle, error) {
	if err != nil {
		r.Rollback()
		return Handle{}, err
	}
	if err := r.Commit(); err != nil {
		r.Rollback()
		return Handle{}, err
	}
	r.Abort()
	return h, nil
}

func (s steps) Put(key string, v serde.Value, o PutOptions) (Handle, error) {
	r, err := s.in.unnamedRequest()
	if err != nil {
		return Handle{}, err
	}
	h, err := put(r, key, v, o, raw)
	return send(r, h, err)
}

func (s steps) GetCached(key string) (Handle, error) {
	r, err := s.in.unnamedRequest()
	if err != nil {
		return Handle{}, err
	}
	h, err := r.lookup(key, raw)
	if err == nil {
		s.in.untouch(key)
	}
	return send(r, h, err)
}

func (s steps) Reserve(key string, v serde.Value, o PutOptions) (*Reservation, error) {
	r, err := s.in.unnamedRequest()
	if err != nil {
		return nil, err
	}
	res, err := reserve(r, key, v, o)
	if err != nil {
		r.Rollback()
		return nil, err
	}
	res.in = stepChunk{res.in, r}
	return res, nil
}

// stepChunk ends the request of its one handle.
type stepChunk struct {
	reservedChunk
	r Request
}

func (c stepChunk) commit(int) (Handle, error) {
	h, err := c.reservedChunk.commit(raw)
	if errors.Is(err, ErrInvalid) {
		return Handle{}, err // it had ended already
	}
	return send(c.r, h, err)
}

func (c stepChunk) discard() {
	c.reservedChunk.discard()
	c.r.Rollback()
}

func (s steps) Touch(key string) error {
	switch s.Generation().Counting {
	case pycompat.CountTouch:
		if !s.Cached(key) {
			return nil
		}
		r, err := s.in.unnamedRequest()
		if err != nil {
			return err
		}
		h, err := r.lookup(key, raw)
		_, err = send(r, h, err)
		if errors.Is(err, ErrNotFound) {
			err = nil // it went just now
		}
		return err
	case pycompat.CountPerAddress:
		_, err := s.in.touch(key)
		return err
	}
	return s.check()
}

// check fails if the store is closed.
func (s steps) check() error {
	_, _, err := s.in.object("")
	return err
}

func (s steps) TouchHandle(ctx context.Context, key string, h Handle) error {
	if s.counter == nil {
		return s.Touch(key)
	}
	if err := s.chunks.seg.Hold(); err != nil {
		return err
	}
	defer s.chunks.seg.Release()
	return touch(ctx, s.chunks, s.Generation(), s.counter, h, func() error { return s.Verify(key, h) })
}

func (s steps) Untouch(key string) { s.in.untouch(key) }

func (s steps) ReleaseTouches() { s.in.untouchAll() }

func (s steps) FreeUnused() ([]uint32, error) { return s.in.freeUnused() }

func (s steps) Evict(key string) (bool, error) { return s.in.evict(key) }

func (s steps) Signature(key string) ([]byte, error) {
	h, ok, err := s.in.object(key)
	if err == nil && !ok {
		err = &shmstore.KeyError{Key: key, Err: ErrNotFound}
	}
	return h.Signature, err
}

func (s steps) Get(h Handle) (*View, error) {
	if err := s.chunks.seg.Hold(); err != nil {
		return nil, err
	}
	release, err := s.in.hold(h)
	if err != nil {
		s.chunks.seg.Release()
		return nil, err
	}
	v, err := s.chunks.read(h)
	if err != nil {
		release()
		s.chunks.seg.Release()
		return nil, err
	}
	u := &use{chunks: s.chunks, handle: h, counter: s.counter, done: release}
	return u.view(v), nil
}

func unnamed(n uint64) string { return fmt.Sprintf("(a handle without a request, %d)", n) }

type poolSteps struct{ p *Pool }

func (s poolSteps) unnamedRequest() (stepRequest, error) {
	return s.p.begin(unnamed(s.p.unnamed.Add(1)))
}
func (s poolSteps) touch(key string) (bool, error) { return s.p.store.Pin(key) }
func (s poolSteps) untouch(key string)             { s.p.store.Unpin(key) }
func (s poolSteps) untouchAll()                    { s.p.store.Unpin() }
func (s poolSteps) freeUnused() ([]uint32, error)  { return s.p.store.Evict() }
func (s poolSteps) evict(key string) (bool, error) { return s.p.Evict(key) }

func (s poolSteps) object(key string) (h Handle, ok bool, err error) {
	o, err := s.p.store.Find(key)
	if errors.Is(err, ErrNotFound) {
		return Handle{}, false, nil
	}
	if err == nil {
		h = s.p.handle(o)
	}
	return h, err == nil, err
}

func (s poolSteps) hold(h Handle) (release func(), err error) {
	r, err := s.p.begin(unnamed(s.p.unnamed.Add(1)))
	if err != nil {
		return nil, err
	}
	_, err = r.HoldID(h.ID)
	if err != nil && !errors.Is(err, shmstore.ErrStale) {
		r.Rollback()
		return nil, err
	}
	return r.Rollback, nil
}

type fifoSteps struct{ f *FIFO }

func (s fifoSteps) unnamedRequest() (stepRequest, error) {
	return s.f.begin(unnamed(s.f.unnamed.Add(1)))
}

func (s fifoSteps) touch(key string) (bool, error) {
	if err := s.f.lock(); err != nil {
		return false, err
	}
	defer s.f.mu.Unlock()
	o, ok := s.f.index[key]
	if ok {
		o.touched = true
		s.f.touched[o] = struct{}{}
		s.f.wakeFirst()
	}
	return ok, nil
}

func (s fifoSteps) untouch(key string) {
	if s.f.lock() != nil {
		return
	}
	defer s.f.mu.Unlock()
	if o, ok := s.f.index[key]; ok {
		s.f.untouch(o)
	}
}

func (s fifoSteps) untouchAll() {
	if s.f.lock() != nil {
		return
	}
	defer s.f.mu.Unlock()
	for o := range s.f.touched {
		s.f.untouch(o)
	}
}

func (s fifoSteps) freeUnused() ([]uint32, error) {
	if err := s.f.lock(); err != nil {
		return nil, err
	}
	defer s.f.mu.Unlock()
	return s.f.freeUnused()
}

func (s fifoSteps) evict(string) (bool, error) {
	if err := s.f.lock(); err != nil {
		return false, err
	}
	defer s.f.mu.Unlock()
	return false, fmt.Errorf("%w: in a FIFO only the oldest object can go, see FreeUnused", ErrInvalid)
}

func (s fifoSteps) object(key string) (h Handle, ok bool, err error) {
	if err := s.f.lock(); err != nil {
		return h, false, err
	}
	defer s.f.mu.Unlock()
	o, ok := s.f.index[key]
	if ok {
		h = s.f.handle(o)
	}
	return h, ok, nil
}

// hold: a view of a FIFO keeps nothing, as vLLM's.
func (s fifoSteps) hold(Handle) (release func(), err error) { return func() {}, nil }
