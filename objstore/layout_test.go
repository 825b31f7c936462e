package objstore

import (
	"bytes"
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
