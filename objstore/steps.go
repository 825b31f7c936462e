package objstore

import (
	"context"
	"errors"
	"fmt"
	"time"

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
	chunks  *chunks
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
	keyed
	// hold keeps the object of an id, if there is one, until the function is called.
	hold(h serde.Address) (release func(), err error)
}

// stepRequest is a request whose keys may be empty, and whose uses raw.
type stepRequest interface {
	Request
	putter
	lookup(key string, n int) (serde.Address, error)
}

func init() { //nolint:gochecknoinits // it sets functions, and does nothing else
	door.Steps = func(store, lock any, lockTimeout time.Duration) any {
		l, _ := lock.(Locker)
		return store.(Store).withSteps(l, lockTimeout)
	}
}

func (p *Pool) withSteps(l Locker, timeout time.Duration) steps {
	return steps{p, poolSteps{p}, &p.chunks, newCounter(l, timeout, p.opt.Readers)}
}

func (f *FIFO) withSteps(l Locker, timeout time.Duration) steps {
	return steps{f, fifoSteps{f}, &f.chunks, newCounter(l, timeout, f.opt.Readers)}
}

// send ends a request whose one handle is given out.
func send(r Request, h serde.Address, err error) (serde.Address, error) {
	if err != nil {
		r.Rollback()
		return serde.Address{}, err
	}
	if err := r.Commit(); err != nil {
		r.Rollback()
		return serde.Address{}, err
	}
	r.Abort()
	return h, nil
}

func (s steps) Put(key string, v serde.Value, o PutOptions) (serde.Address, error) {
	r, err := s.in.unnamedRequest()
	if err != nil {
		return serde.Address{}, err
	}
	h, err := put(r, key, v, o, raw)
	return send(r, h, err)
}

func (s steps) GetCached(key string) (serde.Address, error) {
	r, err := s.in.unnamedRequest()
	if err != nil {
		return serde.Address{}, err
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

func (c stepChunk) commit(int) (serde.Address, error) {
	h, err := c.reservedChunk.commit(raw)
	if errors.Is(err, errInvalid) {
		return serde.Address{}, err // it had ended already
	}
	return send(c.r, h, err)
}

func (c stepChunk) discard() {
	c.reservedChunk.discard()
	c.r.Rollback()
}

func (s steps) Touch(key string) error {
	switch s.chunks.options.Generation.Counting {
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
	_, _, err := s.in.current("")
	return err
}

func (s steps) TouchHandle(ctx context.Context, key string, h serde.Address) error {
	if s.counter == nil {
		return s.Touch(key)
	}
	if err := s.chunks.seg.Hold(); err != nil {
		return err
	}
	defer s.chunks.seg.Release()
	return touch(ctx, s.chunks, s.counter, &h, func() error { return s.Verify(key, h) })
}

func (s steps) Untouch(key string) { s.in.untouch(key) }

func (s steps) ReleaseTouches() { s.in.untouchAll() }

func (s steps) FreeUnused() ([]uint32, error) { return s.in.freeUnused() }

func (s steps) Signature(key string) (serde.Signature, error) {
	h, ok, err := s.in.current(key)
	if err == nil && !ok {
		err = &shmstore.KeyError{Key: key, Err: ErrNotFound}
	}
	return h.Signature, err
}

func (s steps) Get(h serde.Address) (*View, error) {
	if err := s.chunks.seg.Hold(); err != nil {
		return nil, err
	}
	release, err := s.in.hold(h)
	if err != nil {
		s.chunks.seg.Release()
		return nil, err
	}
	v := &View{use: &use{chunks: s.chunks, handle: h, counter: s.counter, done: release}}
	err = s.chunks.guard(&h, func() error {
		value, data, err := s.chunks.read(&h)
		if err == nil {
			v.show(newDecoded(value, data), data)
		}
		return err
	})
	if err != nil {
		release()
		s.chunks.seg.Release()
		return nil, err
	}
	return v, nil
}

func unnamed(n uint64) string { return fmt.Sprintf("(a handle without a request, %d)", n) }
