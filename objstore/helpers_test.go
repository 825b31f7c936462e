package objstore

import (
	"cmp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/objstore/internal/objtest"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmring/segment"
	"github.com/ringcache/ringcache/shmstore"
)

var (
	generation = objtest.Generation
	secret     = objtest.Secret
	pickled    = objtest.Pickled
	tensor     = objtest.Tensor
	image      = objtest.Image
	newLock    = objtest.NewLock
)

// writer is a store with vLLM's steps, of which most of these tests are made.
type writer struct {
	steps
	fifo *FIFO
	pool *Pool
}

func newWriter(s Store) *writer {
	w := &writer{steps: s.withSteps(nil, 0)}
	w.fifo, _ = s.(*FIFO)
	w.pool, _ = s.(*Pool)
	return w
}

// kind is one of the two stores.
type kind string

const (
	fifo kind = "fifo"
	pool kind = "pool"
)

var kinds = []kind{fifo, pool}

// create makes a store of some kind.
func (k kind) create(o Options) (*writer, error) {
	if k == fifo {
		return asWriter(CreateFIFO(o))
	}
	return asWriter(CreatePool(o))
}

func asWriter[S Store](s S, err error) (*writer, error) {
	if err != nil {
		return nil, err
	}
	return newWriter(s), nil
}

// Fence is that of a pool. In a FIFO nothing waits for one.
func (w *writer) Fence() shmstore.Fence {
	if w.pool == nil {
		return shmstore.Fence{}
	}
	return w.pool.Fence()
}

// Evict is that of a pool. A FIFO has none.
func (w *writer) Evict(key string) (bool, error) {
	if w.pool == nil {
		return false, errInvalid
	}
	return w.pool.Evict(key)
}

// over makes a store of some kind over a segment.
func (k kind) over(seg *segment.Segment, o Options) (*writer, error) {
	o.Segment = seg
	return k.create(o)
}

// adoptPool is AdoptPool, with the steps.
func adoptPool(o Options) (*writer, shmstore.Adoption, error) {
	s, a, err := AdoptPool(o)
	if err != nil {
		return nil, a, err
	}
	return newWriter(s), a, nil
}

// Put, Lookup and Reserve are steps without options, whose handles belong to no request.
func (w *writer) Put(key string, v serde.Value) (serde.Address, error) {
	return w.steps.Put(key, v, PutOptions{})
}
func (w *writer) Lookup(key string) (serde.Address, error) { return w.GetCached(key) }
func (w *writer) Reserve(key string, v serde.Value) (*Reservation, error) {
	return w.steps.Reserve(key, v, PutOptions{})
}

// Len is the number of chunks.
func (w *writer) Len() int {
	if w.pool == nil {
		w.fifo.mu.Lock()
		defer w.fifo.mu.Unlock()
		return w.fifo.ring.Len()
	}
	st, _ := w.pool.bytesStore.Inspect(nil)
	return st.Chunks
}

// change changes the counts of an object of a pool, and its reads in the segment.
func (w *writer) change(t testing.TB, key string, f func(o *poolObject, reads []byte)) {
	t.Helper()
	found := false
	_, err := w.pool.bytesStore.Inspect(func(o *shmstore.Object, state shmstore.ObjectState) {
		if state.Indexed && o.Key() == key {
			found = true
			f(record(o), w.pool.payload(o))
		}
	})
	require.NoError(t, err)
	require.True(t, found)
}

// locked runs f under the lock of a store that has objects.
func (w *writer) locked(t testing.TB, f func()) {
	t.Helper()
	if w.fifo != nil {
		w.fifo.mu.Lock()
		defer w.fifo.mu.Unlock()
		f()
		return
	}
	done := false
	_, err := w.pool.bytesStore.Inspect(func(*shmstore.Object, shmstore.ObjectState) {
		if !done {
			done = true
			f()
		}
	})
	require.NoError(t, err)
	require.True(t, done)
}

// segment returns the options of an existing segment of a pool.
func (o Options) segment() segment.Options {
	return segment.Options{Name: o.Name, Dir: o.Dir, RingSize: o.RingSize, DataOffset: o.Generation.DataOffset}
}

// adoptSegment makes a pool of what is in a segment whose writer just went away.
func adoptSegment(seg *segment.Segment, o Options) (*writer, shmstore.Adoption, error) {
	o, err := o.resolvePool()
	if err != nil {
		return nil, shmstore.Adoption{}, err
	}
	p, so := newPool(o)
	so.Segment = seg
	_, a, err := shmstore.Adopt(so)
	if err != nil {
		return nil, a, err
	}
	return newWriter(p), a, nil
}

// request is a request whose calls have no options.
type request struct{ Request }

func begin(t testing.TB, s Store, id string) request {
	t.Helper()
	r, err := s.Begin(id)
	require.NoError(t, err)
	return request{r}
}

func (r request) Put(key string, v serde.Value) (serde.Address, error) {
	return r.Request.Put(key, v, PutOptions{})
}
func (r request) Reserve(key string, v serde.Value) (*Reservation, error) {
	return r.Request.Reserve(key, v, PutOptions{})
}
func (r request) Lookup(key string) (serde.Address, error) { return r.Request.Lookup(key) }

// store is a writer over private memory, with readers on the same memory.
type store struct {
	*writer
	mem     []byte
	readers []*Reader
}

// newStore makes a FIFO, since most of these tests are about what vLLM does.
func newStore(t testing.TB, o Options) *store {
	t.Helper()
	return newStoreOf(t, fifo, o)
}

// newStoreOf makes a store whose structure is validated when the test ends. The
// readers share one lock. A pool has a sidecar.
func newStoreOf(t testing.TB, k kind, o Options) *store {
	t.Helper()
	o, err := o.resolve()
	require.NoError(t, err)
	g := o.Generation
	m := make([]byte, g.DataOffset+o.RingSize)
	so := segment.Options{RingSize: o.RingSize, DataOffset: g.DataOffset}
	own := so
	if k == pool {
		own.Sidecar = &segment.SidecarOptions{
			Pool: true, Format: g.Version, Readers: o.Readers, Slots: o.ReaderSlots, Objects: cmp.Or(o.MaxObjects, 1024),
		}
	}
	seg, err := segment.Private(m, own)
	require.NoError(t, err)
	w, err := k.over(seg, o)
	require.NoError(t, err)
	copy(seg.Secret(), secret())
	s := &store{writer: w, mem: m}
	lock := newLock()
	for range o.Readers {
		seg, err := segment.Private(m, so)
		require.NoError(t, err)
		r, err := Open("", ReaderOptions{Segment: seg, RingSize: o.RingSize, Readers: o.Readers, Generation: g, Lock: lock, LockTimeout: time.Minute})
		require.NoError(t, err)
		s.readers = append(s.readers, r)
	}
	t.Cleanup(func() {
		require.NoError(t, s.CheckStructure())
		for _, r := range s.readers {
			require.NoError(t, r.Close())
		}
		require.NoError(t, s.Close()) // which another may have adopted
	})
	return s
}

// readAll lets every reader read a handle once.
func (s *store) readAll(t testing.TB, h serde.Address, key string) {
	t.Helper()
	for _, r := range s.readers {
		v, err := r.Get(key, h)
		require.NoError(t, err)
		require.NoError(t, v.Release())
	}
}
