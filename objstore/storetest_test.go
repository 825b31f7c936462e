package objstore

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/storetest"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmring/segment"
	"github.com/ringcache/ringcache/shmstore"
)

// tested is a store behind the interfaces of storetest: over private memory, or, if it may crash,
// in a folder.
type tested struct {
	*writer
	o        Options
	readers  []*Reader
	observer *Reader // does not count
	requests []testedRequest
	ended    []testedRequest // of them, those that can begin again
}

func newTested(k kind, version string) storetest.New {
	return func(c storetest.Config) (storetest.Store, error) { return openTested(k, version, Options{}, c) }
}

func openTested(k kind, version string, o Options, c storetest.Config) (*tested, error) {
	g, err := pycompat.Lookup(version)
	if err != nil {
		return nil, err
	}
	o.Name, o.RingSize, o.MaxObjectSize, o.Readers, o.Generation = "s", c.Size, c.MaxObject, c.Readers, g
	o.QuarantineTTL, o.TrustCounts = -1, true
	o.MaxObjects, o.ReaderSlots = 40, c.Readers+1 // a small sidecar, as thousands of stores are made
	s := &tested{o: o}
	memory := make([]byte, g.DataOffset+c.Size)
	open := func() (*segment.Segment, error) {
		if o.Dir != "" {
			return nil, nil
		}
		return segment.Private(memory, segment.Options{RingSize: c.Size, DataOffset: g.DataOffset})
	}
	if s.o.Segment, err = open(); err != nil {
		return nil, err
	}
	if s.writer, err = k.create(s.o); err != nil {
		return nil, err
	}
	copy(s.Segment().Secret(), c.Secret)
	lock := newLock()
	for i := range c.Readers + 1 {
		ro := ReaderOptions{RingSize: c.Size, Readers: c.Readers, Generation: g, Dir: o.Dir, Lock: lock}
		if i == c.Readers {
			ro.Lock = nil
		}
		if ro.Segment, err = open(); err != nil {
			return nil, err
		}
		r, err := Open("s", ro)
		if err != nil {
			return nil, err
		}
		s.readers = append(s.readers, r)
	}
	s.observer = s.readers[c.Readers]
	return s, nil
}

func testedHandle(h serde.Address) storetest.Handle {
	out := storetest.Handle{Address: h.Address, ID: uint64(h.ID)}
	if !h.Signature.IsZero() {
		out.Signature = hex.EncodeToString(h.Signature[:])
	}
	return out
}

func untestedHandle(h storetest.Handle) serde.Address {
	out := serde.Address{Address: h.Address, ID: uint32(h.ID)}
	if h.Signature != "" {
		out.Signature = serde.Signature{1} // never right
		if b, err := hex.DecodeString(h.Signature); err == nil && len(b) == len(out.Signature) {
			out.Signature = serde.Signature(b)
		}
	}
	return out
}

func (s *tested) Put(key string, value []byte) (storetest.Handle, error) {
	h, err := s.writer.Put(key, serde.Pickle(value))
	return testedHandle(h), err
}

func (s *tested) Lookup(key string) (storetest.Handle, error) {
	h, err := s.writer.Lookup(key)
	return testedHandle(h), err
}

func (s *tested) Get(reader int, key string, h storetest.Handle) ([]byte, error) {
	return got(s.readers[reader].Get(key, untestedHandle(h)))
}

func got(v *View, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	value, err := v.Clone()
	if err := errors.Join(err, v.Release()); err != nil {
		return nil, err
	}
	b, ok := value.(serde.Pickle)
	if !ok {
		return nil, fmt.Errorf("a %T, not the pickle that was stored", value)
	}
	return b, nil
}

func (s *tested) State() (out storetest.State, err error) {
	st, err := s.writer.State()
	if err != nil {
		return out, err
	}
	for _, o := range st.Objects {
		if !o.Indexed {
			continue
		}
		h := serde.Address{Address: o.Address, ID: o.ID}
		if h.Signature, err = s.Signature(o.Key); err != nil {
			return out, err
		}
		value, err := got(s.observer.Get(o.Key, h))
		if err != nil {
			return out, fmt.Errorf("%q, which is in the store, can't be read: %w", o.Key, err)
		}
		out.Objects = append(out.Objects, storetest.Object{Key: o.Key, Handle: testedHandle(h), Value: value, Uses: int(o.Uses), Reads: int(o.Reads)})
	}
	return out, nil
}

func (s *tested) Close() error {
	var errs []error
	for _, r := range s.readers {
		errs = append(errs, r.Close())
	}
	return errors.Join(append(errs, s.Abandon())...)
}

func (s *tested) FreeUnused() error {
	_, err := s.writer.FreeUnused()
	return err
}

func (s *tested) TouchHandle(reader int, key string, h storetest.Handle) error {
	return s.readers[reader].Touch(context.Background(), key, untestedHandle(h))
}

func (s *tested) ReleaseTouches() error {
	s.writer.ReleaseTouches()
	return nil
}

// testedPool has what a FIFO does not have, or does in its own way.
type testedPool struct{ *tested }

func (s testedPool) Fence() error {
	s.pool.Fence().Passed()
	return nil
}

func (s testedPool) ResetReaders() error { return s.writer.ResetReaders(0) }

// Begin begins a request again that has ended, if there is one.
func (s testedPool) Begin(id string) (storetest.Request, error) {
	if n := len(s.ended) - 1; n >= 0 {
		r := s.ended[n]
		err := r.r.Begin(id)
		if err == nil {
			s.ended = s.ended[:n]
		}
		return r, err
	}
	r, err := s.pool.Begin(id)
	if err != nil {
		return nil, err
	}
	s.requests = append(s.requests, testedRequest{r, s.tested})
	return s.requests[len(s.requests)-1], nil
}

type testedRequest struct {
	r Request
	s *tested
}

func (r testedRequest) Put(key string, value []byte) (storetest.Handle, error) {
	h, err := r.r.Put(key, serde.Pickle(value), PutOptions{})
	return testedHandle(h), err
}

func (r testedRequest) Lookup(key string) (storetest.Handle, error) {
	h, err := r.r.Lookup(key)
	return testedHandle(h), err
}

func (r testedRequest) Commit() error   { return r.r.Commit() }
func (r testedRequest) Rollback() error { return r.end(Request.Rollback) }
func (r testedRequest) Finish() error   { return r.end(Request.Finish) }
func (r testedRequest) Abort() error    { return r.end(Request.Abort) }

// end reports what the library lets pass, so that it can be deferred.
func (r testedRequest) end(f func(Request)) error {
	if f(r.r); !r.r.Ended() {
		return errors.New("it can't end so")
	}
	r.s.ended = append(r.s.ended, r)
	return nil
}

// crashing is a pool in a folder, whose writer goes now and then. It detaches: TestKillMatrix and
// TestKillAtRandomInstants are about writers that are killed.
type crashing struct{ testedPool }

func newCrashing(t testing.TB) storetest.New {
	return func(c storetest.Config) (storetest.Store, error) {
		s, err := openTested(pool, "0.33.0", Options{Dir: t.TempDir()}, c)
		if err != nil {
			return nil, err
		}
		return crashing{testedPool{s}}, nil
	}
}

func (s crashing) Crash() (dropped int, err error) {
	for _, r := range s.requests {
		r.r.Rollback()
		r.r.Abort()
	}
	if err := s.Detach(); err != nil {
		return 0, err
	}
	w, a, err := adoptPool(s.o)
	if err != nil {
		return 0, err
	}
	s.writer, s.requests, s.ended = w, nil, nil
	return a.Dropped, s.CheckStructure()
}

func storeKind(err error) string {
	var large *shmstore.TooLargeError
	switch {
	case errors.Is(err, ErrKeyExists):
		return "exists"
	case errors.Is(err, ErrNotFound):
		return "not_found"
	case errors.As(err, &large) && !large.Ring:
		return "too_large"
	case errors.Is(err, ErrFull), errors.Is(err, ErrTooLarge): // vLLM's FIFO does not tell them apart
		return "full"
	}
	return "invalid"
}

func fifoOptions(version string) storetest.Options {
	return storetest.Options{Release: version, Kind: storeKind, Ops: 6000}
}

// TestFIFOIsVLLMs: places, ids, counts, and what is freed and refused.
func TestFIFOIsVLLMs(t *testing.T) {
	for _, version := range []string{"0.11.2", "0.12.0", "0.31.0", "0.33.0"} {
		t.Run(version, func(t *testing.T) { storetest.Check(t, newTested(fifo, version), fifoOptions(version)) })
	}
}

// TestEveryHistoryOfAFIFO: of a store of two objects.
func TestEveryHistoryOfAFIFO(t *testing.T) {
	for _, version := range []string{"0.11.2", "0.31.0", "0.33.0"} {
		t.Run(version, func(t *testing.T) { storetest.Exhaust(t, newTested(fifo, version), fifoOptions(version)) })
	}
}

// TestFIFOKeepsItsPromises: also where chunks are aligned, as vLLM's are not.
func TestFIFOKeepsItsPromises(t *testing.T) {
	for _, align := range []int{0, 8, 64} {
		t.Run(fmt.Sprint(align), func(t *testing.T) {
			storetest.Check(t, func(c storetest.Config) (storetest.Store, error) {
				return openTested(fifo, "0.33.0", Options{Align: align}, c)
			}, storetest.Options{Kind: storeKind, Ops: 4000})
		})
	}
}

func poolOptions() storetest.Options {
	return storetest.Options{Kind: storeKind, Ops: 30000, Length: 400}
}

func newTestedPool(version string) storetest.New {
	return func(c storetest.Config) (storetest.Store, error) {
		s, err := openTested(pool, version, Options{}, c)
		if err != nil {
			return nil, err
		}
		return testedPool{s}, nil
	}
}

func TestPoolKeepsItsPromises(t *testing.T) {
	storetest.Check(t, newTestedPool("0.33.0"), poolOptions())
}

func TestPoolThatCrashes(t *testing.T) {
	o := poolOptions()
	o.Ops, o.Length = 3000, 100
	storetest.Check(t, newCrashing(t), o)
}

func TestEveryHistoryOfAPool(t *testing.T) {
	storetest.Exhaust(t, newTestedPool("0.33.0"), storetest.Options{Kind: storeKind})
}

func FuzzFIFO(f *testing.F) {
	storetest.Fuzz(f, newTested(fifo, "0.33.0"), fifoOptions("0.33.0"))
}

func FuzzPool(f *testing.F) { storetest.Fuzz(f, newTestedPool("0.33.0"), poolOptions()) }

// TestBrokenStoresAreNoticed: the interfaces above hide nothing. Bytes that somebody else wrote
// into the segment, and a count that somebody else changed, are seen.
func TestBrokenStoresAreNoticed(t *testing.T) {
	for name, spoil := range map[string]func(s *tested, address uint64){
		"bytes":  func(s *tested, at uint64) { s.Segment().Ring()[at+100] ^= 1 },
		"counts": func(s *tested, at uint64) { s.Segment().Ring()[at+8]++ },
	} {
		t.Run(name, func(t *testing.T) {
			f, _, err := storetest.Find(func(c storetest.Config) (storetest.Store, error) {
				s, err := openTested(pool, "0.33.0", Options{}, c)
				if err != nil {
					return nil, err
				}
				return &spoiled{testedPool{s}, spoil}, nil
			}, poolOptions())
			require.NoError(t, err)
			require.NotNil(t, f)
			t.Log(f)
		})
	}
}

// spoiled changes the segment when an object of some size is looked up.
type spoiled struct {
	testedPool
	spoil func(s *tested, address uint64)
}

func (s *spoiled) Lookup(key string) (storetest.Handle, error) {
	h, err := s.testedPool.Lookup(key)
	if err == nil && h.Address+200 < uint64(s.o.RingSize) {
		s.spoil(s.tested, h.Address)
	}
	return h, err
}
