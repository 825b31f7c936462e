// Package objtest contains what the tests of objstore and of objstore/upstream share.
package objtest

import (
	"bytes"
	"context"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
)

// Generation returns the generation of a release.
func Generation(t testing.TB, version string) *pycompat.Generation {
	t.Helper()
	g, err := pycompat.Lookup(version)
	require.NoError(t, err)
	return g
}

// Secret returns what the golden generator writes in front of the ring.
func Secret() []byte {
	b := make([]byte, 32)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

// Lock is an objstore.Locker inside one process.
type Lock chan struct{}

// NewLock returns a lock that is free.
func NewLock() Lock { return make(Lock, 1) }

// Lock waits for the lock until ctx ends.
func (l Lock) Lock(ctx context.Context) error {
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TryLock reports whether it took the lock, which was free.
func (l Lock) TryLock() (bool, error) {
	select {
	case l <- struct{}{}:
		return true, nil
	default:
		return false, nil
	}
}

// Unlock frees the lock.
func (l Lock) Unlock() error {
	<-l
	return nil
}

// Pickled returns Python's pickle of a bytes object, protocol 5, as vLLM's fallback
// path stores it.
func Pickled(b []byte) serde.Pickle {
	body := []byte{'C', byte(len(b))}
	if len(b) > 255 {
		body = binary.LittleEndian.AppendUint32([]byte{'B'}, uint32(len(b)))
	}
	body = append(append(body, b...), 0x94, '.')
	out := binary.LittleEndian.AppendUint64([]byte{0x80, 5, 0x95}, uint64(len(body)))
	return append(out, body...)
}

// Tensor returns a uint8 tensor of n bytes b.
func Tensor(n int, b byte) *serde.Tensor {
	return &serde.Tensor{DType: "uint8", Shape: []int{n}, Data: bytes.Repeat([]byte{b}, n)}
}

// Image returns an item with one field of n bytes b.
func Image(n int, b byte) *serde.Item {
	return &serde.Item{
		Modality: "image", Elems: []serde.Elem{{Key: "x", Data: Tensor(n, b), Field: serde.Field{Kind: serde.Batched}}},
	}
}
