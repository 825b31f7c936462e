package upstream_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/objstore/upstream"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmring/segment"
)

func generation(t testing.TB, version string) *pycompat.Generation {
	t.Helper()
	g, err := pycompat.Lookup(version)
	require.NoError(t, err)
	return g
}

// secret is what the golden generator writes in front of the ring.
func secret() []byte {
	b := make([]byte, 32)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

// sign is vLLM's signature of a handle, made anew here.
func sign(key string, address uint64, id uint32) []byte {
	k := sha256.Sum256([]byte(key))
	mac := hmac.New(sha256.New, secret())
	mac.Write(binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint64(k[:], address), id))
	return mac.Sum(nil)
}

// store is a FIFO over private memory, with readers on the same memory.
type store struct {
	upstream.Steps
	opt     objstore.Options
	mem     []byte
	readers []*objstore.Reader
}

// newStore makes a store whose structure is validated when the test ends. The
// readers share one lock.
func newStore(t testing.TB, o objstore.Options) *store {
	t.Helper()
	g, err := pycompat.Resolve(o.Generation)
	require.NoError(t, err)
	o.Generation = g
	s := &store{opt: o, mem: make([]byte, g.DataOffset+o.RingSize)}
	s.create(t)
	lock := make(localLock, 1)
	for range o.Readers {
		r, err := objstore.NewReader(s.attach(t), objstore.ReaderOptions{RingSize: o.RingSize, Readers: o.Readers, Generation: g, Lock: lock, LockTimeout: time.Minute})
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
	seg := s.attach(t)
	f, err := objstore.NewFIFO(seg, s.opt)
	require.NoError(t, err)
	copy(seg.Secret(), secret())
	s.Steps = upstream.FIFO(f)
}

// Put is upstream's put, which has no options.
func (s *store) Put(key string, v serde.Value) (objstore.Handle, error) {
	return s.Steps.Put(key, v, objstore.PutOptions{})
}

// readAll lets every reader read a handle once.
func (s *store) readAll(t testing.TB, h objstore.Handle, key string) {
	t.Helper()
	for _, r := range s.readers {
		v, err := r.Get(h, key)
		require.NoError(t, err)
		require.NoError(t, v.Release())
	}
}

// localLock is a Locker inside one process.
type localLock chan struct{}

func (l localLock) Lock(ctx context.Context) error {
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l localLock) Unlock() error {
	<-l
	return nil
}

// readCount is the number of reads in a chunk's payload.
func readCount(payload []byte) int64 { return int64(int32(mem.LoadStable32(payload))) }

// countSize is the bytes of that number.
const countSize = 4

// pickled is Python's pickle of a bytes object of up to 255 bytes, protocol 5,
// as vLLM's fallback path stores it.
func pickled(b []byte) serde.Pickle {
	body := []byte{'C', byte(len(b))}
	if len(b) > 255 {
		body = binary.LittleEndian.AppendUint32([]byte{'B'}, uint32(len(b)))
	}
	body = append(append(body, b...), 0x94, '.')
	out := binary.LittleEndian.AppendUint64([]byte{0x80, 5, 0x95}, uint64(len(body)))
	return append(out, body...)
}

// tensor is a uint8 tensor of n bytes b.
func tensor(n int, b byte) *serde.Tensor {
	data := make([]byte, n)
	for i := range data {
		data[i] = b
	}
	return &serde.Tensor{DType: "uint8", Shape: []int{n}, Data: data}
}

// image is an item with one field.
func image(n int, b byte) *serde.Item {
	return &serde.Item{Modality: "image", Elems: []serde.Elem{{Key: "x", Data: tensor(n, b), Field: serde.Field{Kind: serde.Batched}}}}
}
