package lmcache

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/internal/lmcache/mp"
	"github.com/ringcache/ringcache/kv"
	"github.com/ringcache/ringcache/lmcache/coordinator"
)

// TestChunksInMemory: a coordinator is told the keys of LMCache of what engines have stored, also by a server
// that knows nothing but what outlives it. What changes them is noticed.
func TestChunksInMemory(t *testing.T) {
	b := newBed(t, func(b *bed) { withDisk(b); b.mo.Size = 128 << 10 })
	e := b.engine("engine", since057)
	e.register(1, 2)
	e.register(2, 2)
	tokens := prompt(1, 70)
	want := map[coordinator.Chunk]bool{}
	list := func() map[coordinator.Chunk]bool {
		out := map[coordinator.Chunk]bool{}
		for c, err := range NewInMemory(b.server).Chunks(t.Context()) {
			require.NoError(t, err)
			out[c] = true
		}
		return out
	}
	last := NewInMemory(b.server).Changes()
	changed := func(what string) {
		t.Helper()
		now := NewInMemory(b.server).Changes()
		require.Greater(t, now, last, what)
		last = now
	}
	for _, x := range []struct {
		worker int
		salt   string
	}{{0, ""}, {0, "alice"}, {1, "alice"}} {
		worker, salt := x.worker, x.salt
		k := e.key("w", tokens, 0, 64)
		k.WorldSize, k.CacheSalt = 2, salt
		require.Equal(t, 4, e.store(of(k, int64(worker)), int64(worker+1)))
		changed("a store")
		rank, err := kv.NewRank(2, worker, 2, worker)
		require.NoError(t, err)
		for _, h := range hashes(t, tokens[:64]) {
			want[coordinator.Chunk{
				Space: coordinator.Space{Model: "org/model", Rank: rank, Salt: salt}, Hash: string(h), Size: chunkBytes,
			}] = true
		}
	}
	b.put("kv.another", "0123")
	b.put("outputs", "of an encoder")
	require.Equal(t, want, list())
	require.Equal(t, chunk, NewInMemory(b.server).ChunkTokens())

	b.restart()
	require.Equal(t, want, list())
	last = NewInMemory(b.server).Changes()
	e = b.engine("engine", since057)
	e.register(1, 1)
	e.pushOut()
	changed("an eviction")
	for c := range list() {
		require.False(t, want[c])
	}

	e.register(1, 2)
	e.register(2, 2)
	last = NewInMemory(b.server).Changes()
	k := e.key("r", tokens, 0, 64)
	k.WorldSize, k.CacheSalt = 2, "alice"
	require.EqualValues(t, 4, e.lookUp(k))
	changed("a promotion")
	there := list()
	for c := range want {
		require.Equal(t, c.Space.Salt == "alice", there[c])
	}
	e.end("r")
	e.must("ManagementService/Clear", &mp.ClearRequest{}, &mp.ClearResponse{})
	b.eventually("all is deleted, and counted", func() bool { return len(list()) == 0 && NewInMemory(b.server).Changes() > last })
	b.nothingHeld()
}
