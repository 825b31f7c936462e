package wire

import (
	"context"
	"io/fs"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/encoder"
)

func TestClientSaysHello(t *testing.T) {
	f := newFake(t, func(q *Request) *Reply {
		if q.Op == Hello {
			return &Reply{Server: "ringcache 1", Space: "m.bfloat16.0"}
		}
		return same(StatusHit)(q)
	})
	fingerprint := &encoder.Fingerprint{Model: "m", DType: "bfloat16"}
	c := dial(t, f, ClientOptions{Name: "load", Fingerprint: fingerprint})
	fingerprint.Model = "other"
	require.Equal(t, "ringcache 1", c.Hello().Server)
	require.Equal(t, uint64(1), c.Hello().Segment.Generation)
	require.GreaterOrEqual(t, len(c.Session()), 20)
	require.Len(t, f.said(), 1)
	h := f.said()[0]
	require.Equal(t, []any{Version, c.Session(), "load", "m"}, []any{h.Version, h.Session, h.Client, h.Fingerprint.Model})

	d := dial(t, f, ClientOptions{Session: "my-session"})
	require.Equal(t, "my-session", f.said()[1].Session)
	require.NotEqual(t, c.Session(), dial(t, f, ClientOptions{}).Session())
	require.NoError(t, d.Close())
	require.NoError(t, d.Close())
	_, err := d.Stat(t.Context(), Request{})
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, err, fs.ErrClosed)
}

func TestDialFails(t *testing.T) {
	f := newFake(t, func(*Request) *Reply {
		return &Reply{Error: &Error{Kind: KindVersion, Text: "upgrade the client"}}
	})
	_, err := Dial(t.Context(), ClientOptions{Socket: f.socket, Name: "test"})
	var refused *Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, KindVersion, refused.Kind)
	for name, o := range map[string]ClientOptions{
		"request: session": {Socket: f.socket, Name: "test", Session: "short"},
		"request: client":  {Socket: f.socket},
		"does it run":      {Socket: f.socket + "x", Name: "test"},
	} {
		_, err := Dial(t.Context(), o)
		require.ErrorContains(t, err, name)
	}
	f.answer = func(*Request) *Reply { return nil }
	_, err = Dial(t.Context(), ClientOptions{Socket: f.socket, Name: "test"})
	require.ErrorContains(t, err, "closed the connection")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Dial(ended, ClientOptions{Socket: f.socket, Name: "test"})
	require.ErrorIs(t, err, context.Canceled)
}

func TestCalls(t *testing.T) {
	var got Request
	f := newFake(t, func(q *Request) *Reply {
		if q.Op == Hello {
			return &Reply{Space: "from hello"}
		}
		got = *q
		got.Names = append([]string{}, q.Names...)
		return same(StatusHit)(q)
	})
	c := dial(t, f, ClientOptions{Fingerprint: &encoder.Fingerprint{Model: "m", DType: "d"}})
	names := []string{"a", "b"}
	for op, call := range map[Op]func(Request) ([]Item, error){
		Pin:    func(q Request) ([]Item, error) { return c.Pin(t.Context(), q) },
		Get:    func(q Request) ([]Item, error) { return c.Get(t.Context(), q) },
		Commit: func(q Request) ([]Item, error) { return c.Commit(t.Context(), q) },
		Abort:  func(q Request) ([]Item, error) { return c.Abort(t.Context(), q) },
	} {
		items, err := call(Request{Lease: "l", Names: names})
		require.NoError(t, err, op)
		require.Len(t, items, 2)
		require.Equal(t, []any{op, "l", "from hello", names}, []any{got.Op, got.Lease, got.Space, got.Names})
	}
	items, err := c.Reserve(t.Context(), Request{Lease: "l", Space: "own", Objects: []Object{{Name: "x", Size: 3}}})
	require.NoError(t, err)
	require.Len(t, items, 1)
	require.Equal(t, "own", got.Space)
	require.NoError(t, c.Release(t.Context(), Request{Leases: []string{"l"}}))
	require.Empty(t, got.Space)
	require.NoError(t, c.Release(t.Context(), Request{Lease: "l", Names: names}))
	require.Equal(t, "from hello", got.Space)
	require.NoError(t, c.Clear(t.Context(), ""))
	require.Empty(t, got.Space)
	_, err = c.Stat(t.Context(), Request{List: true})
	require.NoError(t, err)
	require.True(t, got.List)

	for _, q := range []Request{{Names: names}, {Lease: "l"}, {Lease: "l", Names: names, Keep: true}} {
		_, err := c.Pin(t.Context(), q)
		var refused *Error
		require.ErrorAs(t, err, &refused, "%v", q)
	}
	require.ErrorContains(t, c.Do(t.Context(), &Request{Op: Hello}, &Reply{}), "by itself")
	require.Len(t, f.said(), 1, "a wrong request costs no connection")
}

func TestItemsAreCounted(t *testing.T) {
	f := newFake(t, func(q *Request) *Reply {
		if q.Op == Hello {
			return &Reply{}
		}
		return &Reply{Items: []Item{{Status: StatusMiss}}}
	})
	c := dial(t, f, ClientOptions{})
	_, err := c.Pin(t.Context(), Request{Lease: "l", Space: "s", Names: []string{"a", "b"}})
	require.ErrorContains(t, err, "1 items for 2 names")
	_, err = c.Pin(t.Context(), Request{Lease: "l", Space: "s", Names: []string{"a", "b"}, Prefix: true})
	require.NoError(t, err, "a chain ends with the first miss")
	_, err = c.Get(t.Context(), Request{Lease: "l", Space: "s"})
	require.NoError(t, err, "all of a lease")
	require.Error(t, c.Clear(t.Context(), ""))
}

// TestClientConnectsAgain: after a restart of the daemon the session goes on.
func TestClientConnectsAgain(t *testing.T) {
	f := newFake(t, same(StatusOK))
	c := dial(t, f, ClientOptions{})
	commit := Request{Lease: "l", Space: "s", Names: []string{"a"}}
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
	f := newFake(t, func(q *Request) *Reply {
		if q.Op != Hello && served.Add(1) == 1 {
			return nil
		}
		return same(StatusOK)(q)
	})
	c := dial(t, f, ClientOptions{})
	_, err := c.Commit(t.Context(), Request{Lease: "l", Space: "s", Names: []string{"a"}})
	require.NoError(t, err)
	require.Equal(t, int32(2), served.Load(), "it is sent again")
	require.Len(t, f.said(), 2)
	f.answer = func(q *Request) *Reply {
		if q.Op == Hello {
			return &Reply{}
		}
		return nil
	}
	_, err = c.Pin(t.Context(), Request{Lease: "l", Space: "s", Names: []string{"a"}})
	require.ErrorContains(t, err, "closed the connection")
	require.Len(t, f.said(), 3, "and not for ever")
}

// TestLateAnswers: a call that ends with its context leaves an answer on its way, which the next one passes over.
func TestLateAnswers(t *testing.T) {
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	defer release()
	f := newFake(t, func(q *Request) *Reply {
		if q.Lease == "slow" {
			<-hold
			return &Reply{Items: []Item{{Status: StatusHit, Offset: 1}}}
		}
		return same(StatusMiss)(q)
	})
	c := dial(t, f, ClientOptions{})
	q := Request{Lease: "slow", Space: "s", Names: []string{"a"}}
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
	require.Equal(t, []Item{{Status: StatusMiss}}, items)
	require.Len(t, f.said(), 1, "the same connection")
}

func TestCloseEndsACall(t *testing.T) {
	in, hold := make(chan struct{}), make(chan struct{})
	f := newFake(t, func(q *Request) *Reply {
		if q.Op != Hello {
			close(in)
			<-hold
		}
		return &Reply{}
	})
	defer close(hold)
	c := dial(t, f, ClientOptions{})
	go func() {
		<-in
		_ = c.Close()
	}()
	_, err := c.Stat(t.Context(), Request{})
	require.ErrorIs(t, err, ErrClosed)
}

func TestErrorsOfTheDaemon(t *testing.T) {
	var kind Kind
	f := newFake(t, func(q *Request) *Reply {
		if q.Op == Hello {
			return &Reply{}
		}
		p := &Reply{Error: &Error{Kind: kind, Text: "no"}}
		return p
	})
	c := dial(t, f, ClientOptions{})
	for _, kind = range kinds {
		before := len(f.said())
		for range 3 {
			_, err := c.Stat(t.Context(), Request{})
			var refused *Error
			require.ErrorAs(t, err, &refused)
			require.Equal(t, kind, refused.Kind)
		}
		if kind == KindInvalid || kind == KindBusy {
			require.LessOrEqual(t, len(f.said()), before+1, "the connection goes on")
		} else {
			require.GreaterOrEqual(t, len(f.said()), before+2, "the connection is given up")
		}
	}
}

// TestCallsOfManyGoroutines is for the race detector, and for answers that go to the wrong caller.
func TestCallsOfManyGoroutines(t *testing.T) {
	f := newFake(t, func(q *Request) *Reply {
		p := same(StatusHit)(q)
		for i, n := range q.Names {
			p.Items[i].Name = n
		}
		return p
	})
	c := dial(t, f, ClientOptions{})
	var work sync.WaitGroup
	for i := range 8 {
		work.Go(func() {
			name := string(rune('a' + i))
			for range 50 {
				items, err := c.Pin(t.Context(), Request{Lease: "l", Space: "s", Names: []string{name}})
				if err != nil || items[0].Name != name {
					t.Errorf("%v %v", items, err)
				}
				_ = c.Hello()
			}
		})
	}
	work.Wait()
}
