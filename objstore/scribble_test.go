package objstore

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/segment"
)

// TestPeerScribblesWhileWeRead: another mapping of the segment is written to
// all the time. Every read gives a value or a typed error, and takes no more
// memory than a small multiple of the chunk.
func TestPeerScribblesWhileWeRead(t *testing.T) {
	const n = 1 << 14
	name := segmentName(t)
	w, err := fifo.create(Options{Name: name, RingSize: n, MaxObjectSize: n, Readers: 1})
	require.NoError(t, err)
	defer w.Close()
	r, err := Open(name, ReaderOptions{RingSize: n, Readers: 1, Lock: newLock()})
	require.NoError(t, err)
	h, err := w.Put("k", &serde.Item{Elems: []serde.Elem{
		{Key: "x", Data: tensor(2000, 1), Field: serde.FlatFromSizes(3, 4)},
		{Key: "y", Data: []any{int64(5), tensor(9, 2), tensor(300, 3)}, Field: serde.Field{Kind: serde.Shared, BatchSize: 2}},
	}})
	require.NoError(t, err)

	peer, err := segment.Attach(segment.Options{Name: name, RingSize: n, DataOffset: 32})
	require.NoError(t, err)
	chunk, err := shmring.ReadChunk(peer.Ring(), h.Address)
	require.NoError(t, err)
	good := append([]byte{}, peer.Ring()[:chunk.Size]...)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		rng := rand.New(rand.NewPCG(1, 2))
		head := peer.Ring()[4:min(chunk.Size, 500)] // not the id, so that reads get far
		for {
			select {
			case <-stop:
				return
			default:
			}
			for range 20 {
				p := rng.IntN(len(head))
				head[p] ^= byte(1 << rng.IntN(8))
				if rng.IntN(4) == 0 {
					copy(head, good[4:])
				}
			}
		}
	}()

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const reads = 20000
	values, corrupt := 0, 0
	for range reads {
		v, err := r.Get("k", h)
		if err != nil {
			require.True(t, errors.Is(err, ErrCorrupt) || errors.Is(err, ErrStale), "%v", err)
			corrupt++
			continue
		}
		values++
		_, _ = v.Clone()
		_ = v.Check()
		_ = v.Release()
	}
	runtime.ReadMemStats(&after)
	close(stop)
	<-stopped
	perRead := (after.TotalAlloc - before.TotalAlloc) / reads
	t.Logf("%d values, %d errors, %d bytes allocated per read of a chunk of %d", values, corrupt, perRead, chunk.Size)
	require.Less(t, perRead, uint64(64*chunk.Size))
	copy(peer.Ring(), good)
	require.NoError(t, peer.Close())
	require.NoError(t, r.Close())
	require.NoError(t, w.CheckStructure())
	require.NoError(t, w.Close())
}
