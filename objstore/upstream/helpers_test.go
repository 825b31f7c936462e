package upstream_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/objstore/internal/objtest"
	"github.com/ringcache/ringcache/objstore/upstream"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmring/segment"
)

var (
	generation = objtest.Generation
	secret     = objtest.Secret
	pickled    = objtest.Pickled
	tensor     = objtest.Tensor
	image      = objtest.Image
	newLock    = objtest.NewLock
)

// sign is vLLM's signature of a handle, made anew here.
func sign(key string, address uint64, id uint32) serde.Signature {
	k := sha256.Sum256([]byte(key))
	mac := hmac.New(sha256.New, secret())
	mac.Write(binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint64(k[:], address), id))
	return serde.Signature(mac.Sum(nil))
}

// store is a FIFO over private memory, with readers on the same memory.
type store struct {
	upstream.Steps
	opt     objstore.Options
	lock    objstore.Locker // of the writer, if it counts
	mem     []byte
	readers []*objstore.Reader
}

// newStore makes a store whose structure is validated when the test ends. The
// readers share one lock.
func newStore(t testing.TB, o objstore.Options) *store {
	t.Helper()
	return newCountingStore(t, o, nil)
}

// newCountingStore makes a store whose writer counts its reads under a lock, if there is
// one.
func newCountingStore(t testing.TB, o objstore.Options, lock objstore.Locker) *store {
	t.Helper()
	g, err := pycompat.Resolve(o.Generation)
	require.NoError(t, err)
	o.Generation = g
	s := &store{opt: o, lock: lock, mem: make([]byte, g.DataOffset+o.RingSize)}
	s.create(t)
	readers := newLock()
	for range o.Readers {
		r, err := objstore.Open("", objstore.ReaderOptions{Segment: s.attach(t), RingSize: o.RingSize, Readers: o.Readers, Generation: g, Lock: readers, LockTimeout: time.Minute})
		require.NoError(t, err)
		s.readers = append(s.readers, r)
	}
	t.Cleanup(func() {
		require.NoError(t, s.CheckStructure())
		for _, r := range s.readers {
			require.NoError(t, r.Close())
		}
		require.NoError(t, s.Close())
	})
	return s
}

func (s *store) attach(t testing.TB) *segment.Segment {
	t.Helper()
	seg, err := segment.Private(s.mem, segment.Options{RingSize: s.opt.RingSize, DataOffset: s.opt.Generation.DataOffset})
	require.NoError(t, err)
	return seg
}

// create makes the writer.
func (s *store) create(t testing.TB) {
	t.Helper()
	o := s.opt
	o.Segment = s.attach(t)
	f, err := objstore.CreateFIFO(o)
	require.NoError(t, err)
	copy(o.Segment.Secret(), secret())
	s.Steps = upstream.New(f, upstream.Options{Lock: s.lock})
}

// Put is upstream's put, which has no options.
func (s *store) Put(key string, v serde.Value) (serde.Address, error) {
	return s.Steps.Put(key, v, objstore.PutOptions{})
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

// readCount is the number of reads in a chunk's payload.
func readCount(payload []byte) int64 { return int64(int32(mem.LoadStable32(payload))) }

// countSize is the bytes of that number.
const countSize = 4
