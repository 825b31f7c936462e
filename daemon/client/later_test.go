package client

import (
	"bytes"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/ringcache/ringcache/daemon/wire"
)

// withLater returns a message with keys in each of its maps that no client knows, before and after those
// that it knows.
func withLater(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for _, k := range slices.Collect(maps.Keys(v)) {
			v[k] = withLater(v[k])
		}
		for _, k := range []string{"a of a later daemon", "z of a later daemon"} { // the encoder sorts
			v[k] = map[string]any{"id": 1, "items": []any{nil, 1.5, []byte{1}, map[string]any{"status": "bad"}}}
		}
	case []any:
		for i := range v {
			v[i] = withLater(v[i])
		}
	}
	return v
}

// newLater returns a daemon of a later version: its replies have more in each map than a client of today
// knows.
func newLater(t *testing.T, answer func(q *wire.Request) *wire.Reply) *fake {
	f := newFake(t, answer)
	f.frame = func(frame []byte) []byte {
		var v any
		if err := msgpack.Unmarshal(frame[4:], &v); err != nil {
			panic(err)
		}
		var b bytes.Buffer
		e := msgpack.NewEncoder(&b)
		e.SetSortMapKeys(true)
		if err := e.Encode(withLater(v)); err != nil {
			panic(err)
		}
		return frameOf(b.Bytes())
	}
	return f
}

// TestLaterDaemon: today's client reads what it knows of the answers of a later daemon, and uses no feature
// that it has not offered, nor one that the daemon has not named.
func TestLaterDaemon(t *testing.T) {
	state := &wire.State{Levels: []wire.Level{{Name: "memory", Objects: 1}}, Sessions: 1, Recent: &wire.Use{Hits: 1}}
	listed := []wire.Lease{{Name: "s/l", Pinned: 1}}
	clients := []wire.ClientState{{Session: "s"}}
	item := wire.Item{Status: wire.StatusHit, Offset: 64, Size: 3, Note: []byte("note")}
	f := newLater(t, func(q *wire.Request) *wire.Reply {
		switch q.Op {
		case wire.Hello:
			return &wire.Reply{Space: "s", Features: []string{"of a later daemon", "of both"}}
		case wire.Stat:
			return &wire.Reply{State: state, Leases: listed, Clients: clients}
		case wire.Pin:
			return &wire.Reply{Items: []wire.Item{item}}
		}
		return &wire.Reply{Error: &wire.Error{Kind: "of a later daemon", Text: "no"}}
	})
	c := dial(t, f, Options{})
	require.Empty(t, c.Hello().Features, "nothing was offered")
	require.Equal(t, f.segment, *c.Hello().Segment)
	require.Equal(t, "s", c.Hello().Space)
	items, err := c.Pin(t.Context(), wire.Request{Lease: "l", Space: "s", Names: []string{"a"}})
	require.NoError(t, err)
	require.Equal(t, []wire.Item{item}, items)
	p, err := c.Stat(t.Context(), wire.Request{List: true})
	require.NoError(t, err)
	require.Equal(t, &wire.Reply{ID: p.ID, State: state, Leases: listed, Clients: clients}, p)
	var refused *wire.Error
	require.ErrorAs(t, c.Clear(t.Context(), ""), &refused)
	require.Equal(t, &wire.Error{Kind: "of a later daemon", Text: "no"}, refused)

	with, err := begin(t.Context(), &Client{
		o: Options{Socket: f.socket, Session: "session-2", Name: "test"}, calls: make(chan struct{}, 1), features: []string{"of both", "of this client"},
	})
	require.NoError(t, err)
	defer with.Close()
	require.Equal(t, []string{"of both"}, with.Hello().Features)
	hellos := f.said()
	require.Equal(t, []string{"of both", "of this client"}, hellos[len(hellos)-1].Features)
}
