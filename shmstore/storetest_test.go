package shmstore_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/ringcache/ringcache/fuzz/storetest"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/segment"
	"github.com/ringcache/ringcache/shmstore"
)

// tested is a store without an owner that counts reads, behind the interfaces of storetest.
type tested struct {
	*shmstore.Store
	begun int // requests of one handle
}

func newTested(c storetest.Config) (storetest.Store, error) {
	o := shmstore.Options{Size: c.Size, MaxObjectSize: min(c.MaxObject, c.Size), QuarantineTTL: -1, MaxObjects: 40, ReaderSlots: 1}
	var err error
	if o.Segment, err = segment.Private(nil, o.SegmentOptions()); err != nil {
		return nil, err
	}
	s, err := shmstore.Create(o)
	if err != nil {
		return nil, err
	}
	return &tested{Store: s}, nil
}

func handleOf(o *shmstore.Object) storetest.Handle {
	return storetest.Handle{Address: o.Handle().Offset, ID: uint64(o.Handle().ID)}
}

// unnamed does something in a request of its own, which is sent and aborted: what it gives out
// stays until a fence passes.
func (s *tested) unnamed(f func(r request) (storetest.Handle, error)) (storetest.Handle, error) {
	s.begun++
	r, err := s.Store.Begin(shmstore.RequestOptions{ID: fmt.Sprint("one handle ", s.begun)})
	if err != nil {
		return storetest.Handle{}, err
	}
	h, err := f(request{r})
	if err != nil {
		r.Rollback()
		return h, err
	}
	err = r.Commit()
	r.Abort()
	return h, err
}

func (s *tested) Put(key string, value []byte) (storetest.Handle, error) {
	return s.unnamed(func(r request) (storetest.Handle, error) { return r.Put(key, value) })
}

func (s *tested) Lookup(key string) (storetest.Handle, error) {
	return s.unnamed(func(r request) (storetest.Handle, error) { return r.Lookup(key) })
}

func (s *tested) Get(_ int, _ string, h storetest.Handle) (value []byte, err error) {
	r, err := s.Store.Begin(shmstore.RequestOptions{ID: "a reader"})
	if err != nil {
		return nil, err
	}
	defer r.Rollback()
	o, err := r.HoldID(uint32(h.ID))
	if err != nil {
		return nil, err
	}
	if o.Handle().Offset != h.Address {
		return nil, shmstore.ErrNotFound
	}
	b, err := r.Bytes(o)
	return bytes.Clone(b), err
}

func (s *tested) State() (out storetest.State, err error) {
	memory := s.Segment().Bytes()
	_, err = s.Inspect(func(o *shmstore.Object, st shmstore.ObjectState) {
		if !st.Indexed {
			return
		}
		h := o.Handle()
		value := bytes.Clone(memory[h.Offset : h.Offset+h.Length])
		out.Objects = append(out.Objects, storetest.Object{Key: o.Key(), Handle: handleOf(o), Value: value, Uses: -1, Reads: -1})
	})
	return out, err
}

func (s *tested) Close() error { return s.Abandon() }

func (s *tested) Evict(key string) (bool, error) {
	ids, err := s.Store.Evict(key)
	return len(ids) > 0, err
}

func (s *tested) Fence() error {
	s.Store.Fence().Passed()
	return nil
}

func (s *tested) ResetReaders() error { return s.Store.ResetReaders(0) }

func (s *tested) Begin(id string) (storetest.Request, error) {
	r, err := s.Store.Begin(shmstore.RequestOptions{ID: id})
	return request{r}, err
}

type request struct{ *shmstore.Request }

func (r request) Put(key string, value []byte) (storetest.Handle, error) {
	o, err := r.Request.Put(key, value, shmstore.PutOptions{})
	if err != nil {
		return storetest.Handle{}, err
	}
	return handleOf(o), nil
}

func (r request) Lookup(key string) (storetest.Handle, error) {
	o, err := r.Request.Lookup(key, 1)
	if err != nil {
		return storetest.Handle{}, err
	}
	return handleOf(o), nil
}

func (r request) Rollback() error { return r.end((*shmstore.Request).Rollback) }
func (r request) Finish() error   { return r.end((*shmstore.Request).Finish) }
func (r request) Abort() error    { return r.end((*shmstore.Request).Abort) }

// end reports what the library lets pass, so that it can be deferred.
func (r request) end(f func(*shmstore.Request)) error {
	if f(r.Request); !r.Ended() {
		return errors.New("it can't end so")
	}
	return nil
}

func kind(err error) string {
	switch {
	case errors.Is(err, shmstore.ErrKeyExists):
		return "exists"
	case errors.Is(err, shmstore.ErrNotFound):
		return "not_found"
	case errors.Is(err, shmring.ErrTooLarge):
		return "too_large"
	case errors.Is(err, shmring.ErrFull):
		return "full"
	}
	return "invalid"
}

// Nobody counts reads, so only a fence ends what was aborted, as where readers may come again.
func options() storetest.Options { return storetest.Options{Kind: kind, Ops: 10000, Rereads: true} }

func TestStoreKeepsItsPromises(t *testing.T) { storetest.Check(t, newTested, options()) }

func TestEveryHistory(t *testing.T) { storetest.Exhaust(t, newTested, options()) }

func FuzzStore(f *testing.F) { storetest.Fuzz(f, newTested, options()) }
