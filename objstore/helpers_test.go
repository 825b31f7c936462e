package objstore

import (
	"context"
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmring/segment"
)

func generation(t testing.TB, version string) pycompat.Generation {
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

// store is a writer over private memory, with readers on the same memory.
type store struct {
	*Writer
	mem     []byte
	readers []*Reader
}

// newStore makes a store whose structure is validated when the test ends. The
// readers share one lock.
func newStore(t testing.TB, o Options) *store {
	t.Helper()
	if o.Policy == 0 {
		o.Policy = FIFO // most of these tests are about what vLLM does
	}
	g := o.Generation.OrNewest()
	m := make([]byte, g.DataOffset+o.RingSize)
	so := segment.Options{RingSize: o.RingSize, DataOffset: g.DataOffset}
	own := so
	if o.Policy == Pool {
		own.Sidecar = o.segment().Sidecar
	}
	seg, err := segment.Private(m, own)
	require.NoError(t, err)
	w, err := NewWriter(seg, o)
	require.NoError(t, err)
	copy(seg.Secret(), secret())
	s := &store{Writer: w, mem: m}
	lock := newLocalLock()
	for range o.Readers {
		seg, err := segment.Private(m, so)
		require.NoError(t, err)
		r, err := NewReader(seg, ReaderOptions{RingSize: o.RingSize, Readers: o.Readers, Generation: g, Lock: lock, LockTimeout: time.Minute})
		require.NoError(t, err)
		s.readers = append(s.readers, r)
	}
	t.Cleanup(func() {
		require.NoError(t, s.CheckStructure())
		for _, r := range s.readers {
			require.NoError(t, r.Close())
		}
		require.NoError(t, s.Writer.Close()) // which another may have adopted
	})
	return s
}

// readAll lets every reader read a handle once.
func (s *store) readAll(t testing.TB, h Handle, key string) {
	t.Helper()
	for _, r := range s.readers {
		v, err := r.Get(h, key)
		require.NoError(t, err)
		require.NoError(t, v.Release())
	}
}

// localLock is a Locker inside one process.
type localLock chan struct{}

func newLocalLock() localLock { return make(localLock, 1) }

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
