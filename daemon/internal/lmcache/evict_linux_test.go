package lmcache

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/internal/lmcache/mp"
	"github.com/ringcache/ringcache/tier"
)

// objects returns what memory has, by chunk of a prompt.
func (e *engine) objects(k *mp.IpcCacheServerKey) (out []tier.Object) {
	e.Helper()
	names, err := e.server.chains.names("objects", k.Tokens, 0, int(k.End)/chunk)
	require.NoError(e, err)
	for _, name := range names {
		for o, err := range e.level.List(context.Background(), "") {
			require.NoError(e, err)
			if o.Name == name {
				out = append(out, o)
			}
		}
	}
	e.server.chains.end("objects")
	return out
}

// TestWhatAChunkIsStoredWith: who evicts knows what it costs, behind which chunk it is, and who is charged.
func TestWhatAChunkIsStoredWith(t *testing.T) {
	b := newBed(t, nil)
	e := b.engine("engine", since057)
	e.register(1, 1)
	k := e.key("w", prompt(1, 80), 0, 80)
	k.CacheSalt = "team a"
	k.Start, k.End = 0, 48
	require.Equal(t, 3, e.store(of(k, 0), 1))
	k.Start, k.End = 48, 80
	require.Equal(t, 2, e.store(of(k, 0), 1))
	k.Start = 0
	all := e.objects(k)
	require.Len(t, all, 5)
	for i, o := range all {
		require.Equal(t, "team a", o.Tenant)
		if i == 0 {
			require.Empty(t, o.Parent)
			require.Positive(t, o.Cost)
			continue
		}
		require.Equal(t, all[i-1].Name, o.Parent, "also over two calls")
		require.Greater(t, o.Cost, all[i-1].Cost, "the further behind, the more tokens it attends to")
	}
}

// TestPromptThatDoesNotFit: of a prompt of 23 chunks in memory for 20, the head is stored and the tail is not. A server
// that evicts the chunks used least lately would give the head up for the tail, and find nothing afterwards.
func TestPromptThatDoesNotFit(t *testing.T) {
	const room = 20
	b := newBed(t, func(b *bed) { b.mo.Size = room * (chunkBytes + 576) }) // each has a description, and its checksum
	e := b.engine("engine", since057)
	e.register(1, 1)
	// step stores what an engine has computed at a time.
	step := func(request string, tokens []int64, from, to int) int {
		return e.store(of(e.key(request, tokens, from*chunk, to*chunk), 0), 1)
	}
	long := prompt(1, 23*chunk)
	require.Equal(t, 8, step("long", long, 0, 8))
	require.Equal(t, 8, step("long", long, 8, 16))
	stored := 16 + step("long", long, 16, 23)
	require.GreaterOrEqual(t, stored, room)
	require.Less(t, stored, 23)
	for i := range 3 { // it is asked for again, and its tail is tried again
		request := fmt.Sprint("again ", i)
		require.EqualValues(t, stored, e.lookUp(e.key(request, long, 0, 23*chunk)))
		require.Zero(t, step(request, long, stored, 23))
		e.end(request)
	}
	require.Zero(t, b.level.Usage().Evicted)

	// Another prompt with the same beginning costs the end of the long one, and not what both begin with.
	other := append(long[:10*chunk:10*chunk], prompt(7, 5*chunk)...)
	require.EqualValues(t, 10, e.lookUp(e.key("other", other, 0, 15*chunk)))
	require.Equal(t, 5, step("other", other, 10, 15))
	e.end("other")
	require.EqualValues(t, 15, e.lookUp(e.key("other 2", other, 0, 15*chunk)))
	require.EqualValues(t, stored-5, e.lookUp(e.key("long 2", long, 0, 23*chunk)))
	e.end("other 2")
	e.end("long 2")
	b.nothingHeld()
}

// TestNothingIsStoredBehindWhatHadNoRoom: the later steps of a prompt that does not fit cost the end of what had room, since
// nothing of their own was in front of them.
func TestNothingIsStoredBehindWhatHadNoRoom(t *testing.T) {
	b := newBed(t, func(b *bed) { withDisk(b); b.mo.Size = 20 * (chunkBytes + 576) })
	e := b.engine("engine", since057)
	e.register(1, 1)
	long := prompt(1, 40*chunk)
	for range 2 { // a later request with the same ID begins anew
		stored := 0
		for from := 0; from < 40; from += 8 {
			n := e.store(of(e.key("r", long, from*chunk, (from+8)*chunk), 0), 1)
			require.True(t, n == 0 || from <= stored, "%d of the chunks from %d on were stored, and %d in front", n, from, stored)
			stored += n
			_, err := b.store.Drain(t.Context()) // so that nothing is pinned
			require.NoError(t, err)
		}
		require.GreaterOrEqual(t, stored, 20)
		require.EqualValues(t, stored, e.lookUp(e.key("r", long, 0, 40*chunk)))
		e.end("r")
		require.Zero(t, b.level.Usage().Evicted)
		e.must("ManagementService/Clear", &mp.ClearRequest{}, &mp.ClearResponse{})
		b.eventually("the chunks are gone", func() bool { return b.level.Usage().Objects == 0 })
	}
	c := b.server.served[hexOf([]byte(e.id))]
	c.mu.Lock()
	defer c.mu.Unlock()
	require.Len(t, c.cuts, 1)
	for i := range 2 * maxCuts {
		c.noteCut(fmt.Sprint(i), 1)
		require.LessOrEqual(t, len(c.cuts), maxCuts)
	}
	for request := range c.cuts {
		c.cuts[request] = cut{1, time.Now().Add(-time.Hour)}
	}
	c.swept = time.Time{}
	b.server.sweep(c)
	require.Empty(t, c.cuts)
}

// TestPromptsThatAreStoredInTurns: two prompts do not fit together, and their steps come in turns. A step whose front has gone
// for the other prompt was stored all the same, where nobody finds it, and cost the other prompt as much again.
func TestPromptsThatAreStoredInTurns(t *testing.T) {
	b := newBed(t, func(b *bed) { b.mo.Size = 20 * (chunkBytes + 576) })
	e := b.engine("engine", since057)
	e.register(1, 1)
	var keys []*mp.IpcCacheServerKey
	for i := range 2 {
		keys = append(keys, e.key(fmt.Sprint("prompt ", i), prompt(1+100*i, 16*chunk), 0, 16*chunk))
	}
	for from := int64(0); from < 16; from += 4 {
		for _, k := range keys {
			k.Start, k.End = from*chunk, (from+4)*chunk
			e.store(of(k, 0), 1)
		}
	}
	found := 0
	for _, k := range keys {
		k.Start, k.End = 0, 16*chunk
		found += int(e.lookUp(k))
		e.end(k.RequestId)
	}
	require.EqualValues(t, b.level.Usage().Objects, found, "what is there is found")
	require.GreaterOrEqual(t, found, 16)
	b.nothingHeld()
}

// TestSaltIsPartOfTheIdentity: bytes of one salt are never answered to another, in memory or from a disk.
func TestSaltIsPartOfTheIdentity(t *testing.T) {
	for _, r := range []release{since056, since057} {
		b := newBed(t, func(b *bed) { withDisk(b); b.mo.Size = 64 << 10 })
		e := b.engine("engine", r)
		e.register(1, 1)
		salted := func(request, salt string) *mp.IpcCacheServerKey {
			k := e.key(request, prompt(1, 64), 0, 64)
			k.CacheSalt = salt
			return k
		}
		require.Equal(t, 4, e.store(of(salted("w", "team a"), 0), 1))
		check := func(where string) {
			for i, salt := range []string{"", "team", "team b", "Team a", "team a "} {
				request := fmt.Sprint(where, i)
				require.Zero(t, e.lookUp(salted(request, salt)), "%s, of the salt %q", where, salt)
				require.False(t, e.load(of(salted(request, salt), 0), 1), "%s, of the salt %q", where, salt)
				e.end(request)
			}
		}
		check("memory")
		e.pushOut()
		check("disk")
		require.EqualValues(t, 4, e.lookUp(salted("r", "team a")))
		require.True(t, e.load(of(salted("r", "team a"), 0), 1))
		e.end("r")
		b.nothingHeld()
	}
}

// TestQuotaOfASalt: a salt has what its quota allows, the heads of its prompts, and others pay nothing for it.
func TestQuotaOfASalt(t *testing.T) {
	b := newBed(t, func(b *bed) { b.mo.Quotas = map[string]int64{"greedy": 6 * (chunkBytes + 576)} })
	e := b.engine("engine", since057)
	e.register(1, 1)
	salted := func(request, salt string, first int) *mp.IpcCacheServerKey {
		k := e.key(request, prompt(first, 10*chunk), 0, 10*chunk)
		k.CacheSalt = salt
		return k
	}
	require.Equal(t, 10, e.store(of(salted("w", "modest", 1), 0), 1))
	stored := e.store(of(salted("w", "greedy", 1), 0), 1)
	require.GreaterOrEqual(t, stored, 6)
	require.Less(t, stored, 8)
	require.EqualValues(t, stored, e.lookUp(salted("r", "greedy", 1)))
	e.end("r")
	for i := range 20 {
		require.Positive(t, e.store(of(salted(fmt.Sprint("w", i), "greedy", 100*i), 0), 1))
	}
	require.EqualValues(t, 10, e.lookUp(salted("r", "modest", 1)))
	e.end("r")
	b.nothingHeld()
}
