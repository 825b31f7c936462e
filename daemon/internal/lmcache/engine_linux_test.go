package lmcache

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/internal/lmcache/mp"
	"github.com/ringcache/ringcache/kv"
	"github.com/ringcache/ringcache/kv/paged"
	inprocess "github.com/ringcache/ringcache/lmcache/engine"
	"github.com/ringcache/ringcache/tier"
)

// newInProcess returns an engine of package lmcache/engine over the levels of b, with 32 blocks of 16 tokens, its
// buffers, and the tensors that they are. register has the same layout.
func newInProcess(b *bed, layout paged.Layout) (*inprocess.Engine, *paged.Buffers, [][]byte) {
	b.Helper()
	g := paged.Geometry{Layout: layout, Layers: 2, Blocks: 32, BlockTokens: 16, Heads: 2, HeadSize: 4, ElementSize: 4}
	tensors := make([][]byte, g.Tensors())
	for i := range tensors {
		tensors[i] = make([]byte, g.TensorBytes())
	}
	buffers, err := paged.New(g, tensors)
	require.NoError(b, err)
	e, err := inprocess.New(inprocess.Options{
		Store: b.store, Buffers: buffers,
		Layout: kv.Layout{
			Model: "org/model", World: 1, ChunkTokens: chunk,
			Groups: []kv.Group{{Layers: 2, Slots: chunk, Hidden: 8, DType: "float32", Planes: 2, BlockTokens: 16}},
		},
	})
	require.NoError(b, err)
	return e, buffers, tensors
}

// TestEngineInProcessSharesChunks: what a worker of LMCache has stored by the server, package lmcache/engine
// loads from the same levels, and the reverse, with every byte, while it is in the segment and when the disk
// alone has it.
func TestEngineInProcessSharesChunks(t *testing.T) {
	for _, layout := range []paged.Layout{paged.FlashAttention, paged.FlashInferHND} {
		for _, where := range []string{"segment", "disk"} {
			for _, r := range []release{since056, since057} {
				for _, salt := range []string{"", "tenant"} {
					t.Run(string(layout)+" "+where+" "+r.String()+" "+salt, func(t *testing.T) {
						b := newBed(t, withDisk)
						testSharedChunks(t, b, layout, where == "disk", r, salt)
					})
				}
			}
		}
	}
}

func testSharedChunks(t *testing.T, b *bed, layout paged.Layout, onDisk bool, r release, salt string) {
	worker := b.engine("worker", r)
	worker.register(1, 1)
	e, buffers, _ := newInProcess(b, layout)
	keyOf := func(request string, tokens []int64, to int) *mp.IpcCacheServerKey {
		k := worker.key(request, tokens, 0, to)
		k.CacheSalt = salt
		return k
	}
	slots := func(n int) []int64 { // any that are not in order
		out := make([]int64, n)
		for i := range out {
			out[i] = int64((i/16*7%32)*16 + i%16)
		}
		return out
	}
	toDisk := func() {
		_, err := b.store.Drain(t.Context())
		require.NoError(t, err)
		if !onDisk {
			return
		}
		var keys []tier.Key
		for o, err := range b.level.List(t.Context(), "") {
			require.NoError(t, err)
			keys = append(keys, o.Key)
		}
		require.NotEmpty(t, keys)
		for _, err := range b.level.Delete(t.Context(), keys) {
			require.NoError(t, err)
		}
	}

	// Stored by the worker, loaded by the engine.
	tokens := prompt(1, 70) // 4 chunks and a tail
	k := of(keyOf("w", tokens, 64), 0)
	require.Equal(t, 4, worker.store(k, 1))
	worker.end("w")
	toDisk()
	request := inprocess.Request{Tokens: tokens, Slots: slots(70), Salt: salt}
	n, err := e.Lookup(t.Context(), request, nil)
	require.NoError(t, err)
	require.Equal(t, 64, n)
	end, err := e.Retrieve(t.Context(), request)
	require.NoError(t, err)
	require.Equal(t, 64, end)
	got := make([]byte, chunkBytes)
	for i := range 4 {
		require.NoError(t, buffers.Gather(got, request.Slots[i*chunk:(i+1)*chunk]))
		require.Equal(t, content(k, int64(i)), got, "chunk %d", i)
	}

	// Stored by the engine, loaded by the worker, which checks the bytes.
	tokens = prompt(60_000, 70)
	request.Tokens = tokens
	k = of(keyOf("r", tokens, 64), 0)
	for i := range 4 {
		require.NoError(t, buffers.Scatter(request.Slots[i*chunk:(i+1)*chunk], content(k, int64(i))))
	}
	stored, err := e.Store(t.Context(), request)
	require.NoError(t, err)
	require.Equal(t, inprocess.Stored{New: 64}, stored)
	toDisk()
	require.EqualValues(t, 4, worker.lookUp(keyOf("r", tokens, 64)))
	require.True(t, worker.load(k, 1))
	worker.end("r")

	// Another salt is found by neither.
	request.Salt += "x"
	n, err = e.Lookup(t.Context(), request, nil)
	require.NoError(t, err)
	require.Zero(t, n)
	salt += "y"
	require.Zero(t, worker.lookUp(keyOf("s", tokens, 64)))
	worker.end("s")
	b.nothingHeld()
}

// TestEngineInProcessPlacesPlanesAndLayers: where each row of a worker's chunk is, which has the shape of
// kv.Group.Shape, in the tensors of vLLM's flash attention.
func TestEngineInProcessPlacesPlanesAndLayers(t *testing.T) {
	b := newBed(t, nil)
	worker := b.engine("worker", since057)
	worker.register(1, 1)
	e, _, tensors := newInProcess(b, paged.FlashAttention)
	row := func(plane, layer, token int) []byte {
		return bytes.Repeat([]byte{byte(plane<<6 | layer<<5 | token)}, 32)
	}
	var stored []byte
	for plane := range 2 {
		for layer := range 2 {
			for token := range chunk {
				stored = append(stored, row(plane, layer, token)...)
			}
		}
	}
	tokens := prompt(1, chunk)
	k := of(worker.key("w", tokens, 0, chunk), 0)
	offsets, _ := worker.prepareStore(k, 1)
	require.Len(t, offsets, 1)
	require.Equal(t, chunkBytes, copy(b.segment()[offsets[0]:], stored))
	require.True(t, worker.commitStore(k, 1, nil))
	request := inprocess.Request{Tokens: tokens}
	for i := range int64(chunk) {
		request.Slots = append(request.Slots, 3*16+(i+5)%16)
	}
	end, err := e.Retrieve(t.Context(), request)
	require.NoError(t, err)
	require.Equal(t, chunk, end)
	for plane := range 2 {
		for layer := range 2 {
			for token, slot := range request.Slots {
				at := (plane*32*16 + int(slot)) * 32
				require.Equal(t, row(plane, layer, token), tensors[layer][at:at+32],
					"plane %d, layer %d, token %d", plane, layer, token)
			}
		}
	}
	worker.end("w")
	b.nothingHeld()
}
