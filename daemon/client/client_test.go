package client

import (
	"context"
	"io/fs"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/wire"
	"github.com/ringcache/ringcache/encoder"
)

func TestClientSaysHello(t *testing.T) {
	f := newFake(t, func(q *wire.Request) *wire.Reply {
		if q.Op == wire.Hello {
			return &wire.Reply{Server: "ringcache 1", Space: "m.bfloat16.0"}
		}
		return same(wire.StatusHit)(q)
	})
	fingerprint := &encoder.Fingerprint{Model: "m", DType: "bfloat16"}
	c := dial(t, f, Options{Name: "load", Fingerprint: fingerprint})
	fingerprint.Model = "other"
	require.Equal(t, "ringcache 1", c.Hello().Server)
	require.Equal(t, uint64(1), c.Hello().Segment.Generation)
	require.GreaterOrEqual(t, len(c.Session()), 20)
	require.Len(t, f.said(), 1)
	h := f.said()[0]
	require.Equal(t, []any{wire.Version, c.Session(), "load", "m"}, []any{h.Version, h.Session, h.Client, h.Fingerprint.Model})

	d := dial(t, f, Options{Session: "my-session"})
	require.Equal(t, "my-session", f.said()[1].Session)
	require.NotEqual(t, c.Session(), dial(t, f, Options{}).Session())
	require.NoError(t, d.Close())
	require.NoError(t, d.Close())
	_, err := d.Stat(t.Context(), wire.Request{})
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, err, fs.ErrClosed)
}

func TestDialFails(t *testing.T) {
	f := newFake(t, func(*wire.Request) *wire.Reply {
		return &wire.Reply{Error: &wire.Error{Kind: wire.KindVersion, Text: "upgrade the client"}}
	})
	_, err := Dial(t.Context(), Options{Socket: f.socket, Name: "test"})
	var refused *wire.Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, wire.KindVersion, refused.Kind)
	for name, o := range map[string]Options{
		"request: session": {Socket: f.socket, Name: "test", Session: "short"},
		"request: client":  {Socket: f.socket},
		"does it run":      {Socket: f.socket + "x", Name: "test"},
	} {
		_, err := Dial(t.Context(), o)
		require.ErrorContains(t, err, name)
	}
	f.answer = func(*wire.Request) *wire.Reply { return nil }
	_, err = Dial(t.Context(), Options{Socket: f.socket, Name: "test"})
	require.ErrorContains(t, err, "closed the connection")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Dial(ended, Options{Socket: f.socket, Name: "test"})
	require.ErrorIs(t, err, context.Canceled)
}

func TestCalls(t *testing.T) {
	var got wire.Request
	f := newFake(t, func(q *wire.Request) *wire.Reply {
		if q.Op == wire.Hello {
			return &wire.Reply{Space: "from hello"}
		}
		got = *q
		got.Names = append([]string{}, q.Names...)
		return same(wire.StatusHit)(q)
	})
	c := dial(t, f, Options{Fingerprint: &encoder.Fingerprint{Model: "m", DType: "d"}})
	names := []string{"a", "b"}
	for op, call := range map[wire.Op]func(wire.Request) ([]wire.Item, error){
		wire.Pin:    func(q wire.Request) ([]wire.Item, error) { return c.Pin(t.Context(), q) },
		wire.Get:    func(q wire.Request) ([]wire.Item, error) { return c.Get(t.Context(), q) },
		wire.Commit: func(q wire.Request) ([]wire.Item, error) { return c.Commit(t.Context(), q) },
		wire.Abort:  func(q wire.Request) ([]wire.Item, error) { return c.Abort(t.Context(), q) },
	} {
		items, err := call(wire.Request{Lease: "l", Names: names})
		require.NoError(t, err, op)
		require.Len(t, items, 2)
		require.Equal(t, []any{op, "l", "from hello", names}, []any{got.Op, got.Lease, got.Space, got.Names})
	}
	items, err := c.Reserve(t.Context(), wire.Request{Lease: "l", Space: "own", Objects: []wire.Object{{Name: "x", Size: 3}}})
	require.NoError(t, err)
	require.Len(t, items, 1)
	require.Equal(t, "own", got.Space)
	require.NoError(t, c.Release(t.Context(), wire.Request{Leases: []string{"l"}}))
	require.Empty(t, got.Space)
	require.NoError(t, c.Release(t.Context(), wire.Request{Lease: "l", Names: names}))
	require.Equal(t, "from hello", got.Space)
	require.NoError(t, c.Clear(t.Context(), ""))
	require.Empty(t, got.Space)
	_, err = c.Stat(t.Context(), wire.Request{List: true})
	require.NoError(t, err)
	require.True(t, got.List)

	for _, q := range []wire.Request{{Names: names}, {Lease: "l"}, {Lease: "l", Names: names, Keep: true}} {
		_, err := c.Pin(t.Context(), q)
		var refused *wire.Error
		require.ErrorAs(t, err, &refused, "%v", q)
	}
	require.ErrorContains(t, c.Do(t.Context(), &wire.Request{Op: wire.Hello}, &wire.Reply{}), "by itself")
	require.Len(t, f.said(), 1, "a wrong request costs no connection")
}

func TestItemsAreCounted(t *testing.T) {
	f := newFake(t, func(q *wire.Request) *wire.Reply {
		if q.Op == wire.Hello {
			return &wire.Reply{}
		}
		return &wire.Reply{Items: []wire.Item{{Status: wire.StatusMiss}}}
	})
	c := dial(t, f, Options{})
	_, err := c.Pin(t.Context(), wire.Request{Lease: "l", Space: "s", Names: []string{"a", "b"}})
	require.ErrorContains(t, err, "1 items for 2 names")
	_, err = c.Pin(t.Context(), wire.Request{Lease: "l", Space: "s", Names: []string{"a", "b"}, Prefix: true})
	require.NoError(t, err, "a chain ends with the first miss")
	_, err = c.Get(t.Context(), wire.Request{Lease: "l", Space: "s"})
	require.NoError(t, err, "all of a lease")
	require.Error(t, c.Clear(t.Context(), ""))
}

// TestClientConnectsAgain: after a restart of the daemon the session goes on.
func TestClientConnectsAgain(t *testing.T) {
	f := newFake(t, same(wire.StatusOK))
	c := dial(t, f, Options{})
	commit := wire.Request{Lease: "l", Space: "s", Names: []string{"a"}}
	_, err := c.Commit(t.Context(), commit)
	require.NoError(t, err)
	f.stop()
	_, err = c.Commit(t.Context(), commit)
	require.ErrorContains(t, err, "does it run")
	f.start(t)
	_, err = c.Commit(t.Context(), commit)
	require.NoError(t, err)
	require.Len(t, f.said(), 2)
	require.Equal(t, f.said()[0].Session, f.said()[1].Session)
	f.stop()
	f.start(t)
	_, err = c.Commit(t.Context(), commit)
	require.NoError(t, err)
	require.Len(t, f.said(), 3)
}

func TestLostAnswers(t *testing.T) {
	var served atomic.Int32
	f := newFake(t, func(q *wire.Request) *wire.Reply {
		if q.Op != wire.Hello && served.Add(1) == 1 {
			return nil
		}
		return same(wire.StatusOK)(q)
	})
	c := dial(t, f, Options{})
	_, err := c.Commit(t.Context(), wire.Request{Lease: "l", Space: "s", Names: []string{"a"}})
	require.NoError(t, err)
	require.Equal(t, int32(2), served.Load(), "it is sent again")
	require.Len(t, f.said(), 2)
	f.answer = func(q *wire.Request) *wire.Reply {
		if q.Op == wire.Hello {
			return &wire.Reply{}
		}
		return nil
	}
	_, err = c.Pin(t.Context(), wire.Request{Lease: "l", Space: "s", Names: []string{"a"}})
	require.ErrorContains(t, err, "closed the connection")
	require.Len(t, f.said(), 3, "and not for ever")
}

// TestLateAnswers: a call that ends with its context leaves an answer on its way, which the next one passes
// over.
func TestLateAnswers(t *testing.T) {
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	defer release()
	f := newFake(t, func(q *wire.Request) *wire.Reply {
		if q.Lease == "slow" {
			<-hold
			return &wire.Reply{Items: []wire.Item{{Status: wire.StatusHit, Offset: 1}}}
		}
		return same(wire.StatusMiss)(q)
	})
	c := dial(t, f, Options{})
	q := wire.Request{Lease: "slow", Space: "s", Names: []string{"a"}}
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		_, err := c.Pin(ctx, q)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		ctx, cancel = context.WithCancel(t.Context())
		go cancel()
		_, err = c.Pin(ctx, q)
		require.ErrorIs(t, err, context.Canceled)
	}
	release()
	q.Lease = "fast"
	items, err := c.Pin(t.Context(), q)
	require.NoError(t, err)
	require.Equal(t, []wire.Item{{Status: wire.StatusMiss}}, items)
	require.Len(t, f.said(), 1, "the same connection")
}

func TestCloseEndsACall(t *testing.T) {
	in, hold := make(chan struct{}), make(chan struct{})
	f := newFake(t, func(q *wire.Request) *wire.Reply {
		if q.Op != wire.Hello {
			close(in)
			<-hold
		}
		return &wire.Reply{}
	})
	defer close(hold)
	c := dial(t, f, Options{})
	go func() {
		<-in
		_ = c.Close()
	}()
	_, err := c.Stat(t.Context(), wire.Request{})
	require.ErrorIs(t, err, ErrClosed)
}

func TestErrorsOfTheDaemon(t *testing.T) {
	var kind wire.Kind
	f := newFake(t, func(q *wire.Request) *wire.Reply {
		if q.Op == wire.Hello {
			return &wire.Reply{}
		}
		p := &wire.Reply{Error: &wire.Error{Kind: kind, Text: "no"}}
		return p
	})
	c := dial(t, f, Options{})
	for _, kind = range []wire.Kind{
		wire.KindVersion, wire.KindPermission, wire.KindInvalid, wire.KindUnsupported, wire.KindHello, wire.KindBusy, wire.KindClosing,
		wire.KindInternal, "of a later daemon",
	} {
		before := len(f.said())
		for range 3 {
			_, err := c.Stat(t.Context(), wire.Request{})
			var refused *wire.Error
			require.ErrorAs(t, err, &refused)
			require.Equal(t, kind, refused.Kind)
		}
		if slices.Contains([]wire.Kind{wire.KindInvalid, wire.KindUnsupported, wire.KindBusy}, kind) {
			require.LessOrEqual(t, len(f.said()), before+1, "the connection goes on")
		} else {
			require.GreaterOrEqual(t, len(f.said()), before+2, "the connection is given up")
		}
	}
}

// TestCallsOfManyGoroutines is for the race detector, and for answers that go to the wrong caller.
func TestCallsOfManyGoroutines(t *testing.T) {
	f := newFake(t, func(q *wire.Request) *wire.Reply {
		p := same(wire.StatusHit)(q)
		for i, n := range q.Names {
			p.Items[i].Name = n
		}
		return p
	})
	c := dial(t, f, Options{})
	var work sync.WaitGroup
	for i := range 8 {
		work.Go(func() {
			name := string(rune('a' + i))
			for range 50 {
				items, err := c.Pin(t.Context(), wire.Request{Lease: "l", Space: "s", Names: []string{name}})
				if err != nil || items[0].Name != name {
					t.Errorf("%v %v", items, err)
				}
				_ = c.Hello()
			}
		})
	}
	work.Wait()
}
