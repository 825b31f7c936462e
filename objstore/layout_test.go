package objstore

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/segment"
)

// TestLayoutIsThatOfItsDocument: something writes to a document while a reader decodes it for the first time. Whatever
// the reader remembers is what the remembered document means: it would show later objects wrongly otherwise.
func TestLayoutIsThatOfItsDocument(t *testing.T) {
	const n = 8000
	name := segmentName(t)
	w, err := fifo.create(Options{Name: name, RingSize: n, MaxObjectSize: n, Readers: 1})
	require.NoError(t, err)
	defer w.Close()
	r, err := Open(name, ReaderOptions{RingSize: n, Readers: 1, Lock: newLock()})
	require.NoError(t, err)
	defer r.Close()
	const old, changed = 77, 78
	h, err := w.Put("k", &serde.Item{Elems: []serde.Elem{{Key: "number", Data: int64(old)}, {Key: "x", Data: tensor(300, 1)}}})
	require.NoError(t, err)
	peer, err := segment.Attach(segment.Options{Name: name, RingSize: n, DataOffset: 32})
	require.NoError(t, err)
	defer peer.Close()
	chunk, err := shmring.ReadChunk(peer.Ring(), h.Address)
	require.NoError(t, err)
	m, metadata, err := serde.ParseMetadata(chunk.Payload[countSize:])
	require.NoError(t, err)
	document := chunk.Payload[countSize+metadata:][:m.Lens[0]]
	at := bytes.LastIndex(document, []byte("\xa4data\x4d")) + len("\xa4data")
	require.EqualValues(t, old, document[at])

	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				document[at] ^= old ^ changed
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	payload, err := shmring.ReadChunk(r.Segment().Ring(), h.Address)
	require.NoError(t, err)
	for range 20000 {
		m := new(memory)
		l, _, err := m.decode(&r.chunks, &h, payload.Payload)
		require.NoError(t, err)
		require.True(t, l.remembered())
		want, err := serde.DecodeItem([][]byte{l.document, make([]byte, 300)}, serde.Options{})
		require.NoError(t, err)
		require.Equal(t, want.Elems[0].Data, l.value.(*serde.Item).Elems[0].Data)
	}
}

// TestMemoryDecodesAsSerde: what a reader makes of a chunk through its memory is what serde makes of it, also of damaged
// ones, with the same errors.
func TestMemoryDecodesAsSerde(t *testing.T) {
	s := newStore(t, Options{RingSize: 16000, MaxObjectSize: 8000, Readers: 1})
	c := &s.readers[0].chunks
	rng := rand.New(rand.NewPCG(1, 2))
	values := 0
	for i, v := range []serde.Value{nested(), qwen(2352), image(600, 1), tensor(10, 1), tensor(0, 1), pickled([]byte("abc"))} {
		h, err := s.Put(fmt.Sprint(i), v)
		require.NoError(t, err)
		good, err := c.locate(&h, false)
		require.NoError(t, err)
		m := new(memory)
		for range 2000 {
			p := bytes.Clone(good.Payload)
			for range rng.IntN(3) {
				p[countSize+rng.IntN(min(len(p)-countSize, 400))] = byte(rng.Uint32())
			}
			if rng.IntN(4) == 0 {
				p = p[:countSize+rng.IntN(len(p)-countSize+1)]
			}
			want, wantData, wantErr := c.decode(&h, p)
			l, data, err := m.decode(c, &h, p)
			require.Equal(t, wantErr, err)
			if err != nil {
				continue
			}
			values++
			require.Equal(t, wantData, data)
			var got shown
			got.grow(len(l.tensors))
			got.fill(l, data)
			require.Equal(t, serde.Clone(want), serde.Clone(got.value))
		}
	}
	require.NotZero(t, values)
}
