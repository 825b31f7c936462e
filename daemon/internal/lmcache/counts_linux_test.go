package lmcache

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"
	"google.golang.org/protobuf/proto"

	"github.com/ringcache/ringcache/daemon/internal/lmcache/mp"
	"github.com/ringcache/ringcache/daemon/internal/registry"
	"github.com/ringcache/ringcache/tier"
)

// TestCounts: what LMCache's own server would count of the same calls.
func TestCounts(t *testing.T) {
	b := newBed(t, func(b *bed) { withDisk(b); b.mo.Size = 64 << 10 })
	e := b.engine("engine", since057)
	want := Counts{}
	same := func(what string) {
		t.Helper()
		require.Equal(t, want, b.server.Counts(), what)
	}
	tokens := prompt(1, 70) // four chunks and a part of one
	look := func(from int, options []byte) int64 {
		t.Helper()
		k := e.key("r", tokens, from, 70)
		k.EncodedRequestConfigs = options
		n := e.lookUp(k)
		e.end("r")
		want.Lookups++
		want.Prompt += 70
		return n
	}
	require.Zero(t, look(0, nil))
	want.EarlyExits[noWorker] = 1
	same("nobody can load")

	e.register(1, 1)
	want.Workers = 1
	require.Equal(t, 4, e.store(of(e.key("w", tokens, 0, 64), 0), 1))
	require.EqualValues(t, 4, look(0, nil))
	want.Requested, want.HitMemory, want.RequestHit = 64, 64, 64
	same("all of it is in memory")

	hint := msgp.AppendString(msgp.AppendMapHeader(nil, 1), computedOption)
	require.EqualValues(t, 4, look(32, msgp.AppendInt(hint, 35)))
	want.Requested, want.HitMemory, want.RequestHit = 64+32, 64+32, 64+64
	same("the engine has a part itself")
	require.EqualValues(t, 4, look(64, msgp.AppendInt(hint, 69)))
	want.RequestHit += 69
	same("the engine has nearly all")

	skip := msgp.AppendString(msgp.AppendMapHeader(nil, 1), skipLoadOption)
	require.Zero(t, look(0, msgp.AppendBool(skip, true)))
	want.EarlyExits[noLoad], want.Requested = 1, want.Requested+64
	same("nothing is to be loaded")
	short := e.key("short", prompt(1, 10), 0, 10)
	require.Zero(t, e.lookUp(short))
	e.end("short")
	want.Lookups, want.EarlyExits[noChunk], want.Prompt = want.Lookups+1, 1, want.Prompt+10
	same("no whole chunk")

	other := e.key("o", prompt(777, 64), 0, 64)
	require.Zero(t, e.lookUp(other))
	want.Lookups, want.Requested, want.Prompt, want.Requests = want.Lookups+1, want.Requested+64, want.Prompt+64, 1
	same("a miss, of a request that goes on")
	e.end("o")
	want.Requests = 0

	require.True(t, e.load(of(e.key("r", tokens, 16, 64), 0), 1))
	want.Loaded, want.Read = 3, 3
	same("a load")
	require.False(t, e.load(of(other, 0), 1))
	want.NotRead = 4
	same("a load of what is not there")
	e.prepareStore(of(other, 0), 1)
	require.False(t, e.load(of(other, 0), 1))
	want.WriteLocked = 4
	same("a load of what is being stored")
	require.True(t, e.commitStore(of(other, 0), 1, nil))

	_, err := b.store.Drain(t.Context())
	require.NoError(t, err)
	var keys []tier.Key
	for o, err := range b.level.List(t.Context(), "") {
		require.NoError(t, err)
		keys = append(keys, o.Key)
	}
	for _, err := range b.level.Delete(t.Context(), keys) {
		require.NoError(t, err)
	}
	same("nobody asks")
	found := look(0, nil) * chunk
	require.Positive(t, found)
	want.Requested, want.HitLower, want.RequestHit = want.Requested+64, found, want.RequestHit+found
	same("all of it is on the disk alone")

	var held []*mp.IpcCacheServerKey
	for i := range 10 { // what look-ups have stays
		k := e.key(fmt.Sprint("h", i), prompt(5000+i, 64), 0, 64)
		e.store(of(k, 0), 1)
		e.lookUp(k)
		held = append(held, k)
	}
	require.Positive(t, b.server.Counts().NoRoom)
	for _, k := range held {
		e.end(k.RequestId)
	}
	b.nothingHeld()
}

// TestPendingLookUpsAreCounted while the disk is asked.
func TestPendingLookUpsAreCounted(t *testing.T) {
	b := newBed(t, nil)
	e := b.engine("engine", since057)
	e.lookUp(e.key("r", prompt(1, 32), 0, 32))
	b.server.mu.Lock()
	c := b.server.served[hexOf([]byte(e.id))]
	b.server.mu.Unlock()
	pending := func(is bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.requests["r"].lookups[0].pending = is
	}
	require.Zero(t, b.server.Counts().Pending)
	pending(true)
	require.Equal(t, 1, b.server.Counts().Pending)
	pending(false)
	e.end("r")
}

// TestOptionsOfARequest: what can't be read says nothing, and hides nothing.
func TestOptionsOfARequest(t *testing.T) {
	b := msgp.AppendMapHeader(nil, 4)
	b = msgp.AppendInt(msgp.AppendString(b, "other"), 1)
	b = msgp.AppendString(msgp.AppendString(b, computedOption), "many")
	b = msgp.AppendBool(msgp.AppendString(b, skipLoadOption), true)
	b = msgp.AppendInt(msgp.AppendString(b, computedOption), -3)
	skip, computed := parseOptions(b)
	require.True(t, skip)
	require.Zero(t, computed)
	for n := range b {
		parseOptions(b[:n])
	}
	_, computed = parseOptions(msgp.AppendInt64(msgp.AppendString(msgp.AppendMapHeader(nil, 1), computedOption), 1<<40))
	require.Equal(t, maxTokens, computed)
}

// TestCallsAreTimed: each kind by itself, also calls that panic.
func TestCallsAreTimed(t *testing.T) {
	b := newBed(t, func(b *bed) { b.o.Logger = nil })
	before := b.server.Calls()
	require.Len(t, before, len(methods))
	c := caller{ctx: t.Context(), conn: &connection{client: &registry.Client{}}, id: "0123456789abcdef"}
	m := methods["Noop"]
	for range 2 {
		_, err := b.server.answer("Noop", m, c, m.request())
		require.NoError(t, err)
		m.handle = func(*Server, caller, proto.Message) (proto.Message, error) { panic("a bug") }
		_, err = b.server.answer("Ping", m, c, m.request())
		require.Error(t, err)
		m = methods["Noop"]
	}
	for i, x := range b.server.Calls() {
		require.Equal(t, before[i].Name, x.Name)
		want := before[i].Count
		if x.Name == "Noop" || x.Name == "Ping" {
			want += 2
			require.Positive(t, x.Total)
		}
		require.Equal(t, want, x.Count, x.Name)
	}
}
