package lm

import (
	"bytes"
	"context"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/tier"
)

// TestDrainedOnDemand: what clients ask for is taken over from another server, with its description, and is here when
// that one has gone.
func TestDrainedOnDemand(t *testing.T) {
	for _, f := range []Form{Located, Typed, Untyped} {
		old := newBed(t, bedOptions{})
		ctx := t.Context()
		o := old.client(f)
		require.NoError(t, o.Put(ctx, key, meta, []byte("value")))
		require.NoError(t, o.Put(ctx, "m@1@0@2@half", meta, nil))
		_, err := o.Exists(ctx, key) // a Put has no answer
		require.NoError(t, err)
		b := newBed(t, bedOptions{options: Options{From: &ClientOptions{Address: old.address, Form: f}}})
		c := b.client(f)
		found, err := c.Exists(ctx, key)
		require.NoError(t, err)
		require.True(t, found)
		want, _, err := old.client(f).Get(ctx, key, nil)
		require.NoError(t, err)
		for range 2 {
			p, v, err := c.Get(ctx, key, nil)
			require.NoError(t, err)
			require.Equal(t, want, p)
			require.Equal(t, "value", string(v))
			old.server.Shutdown(ctx)
		}
		_, _, err = c.Get(ctx, "m@1@0@2@half", nil) // was not asked for before, and the other server has gone
		require.ErrorIs(t, err, ErrMiss)
		found, err = c.Exists(ctx, "m@1@0@2@half")
		require.NoError(t, err)
		require.False(t, found)
	}
}

// TestSourceOfAnotherForm: a server without dtypes has nothing for clients that need them.
func TestSourceOfAnotherForm(t *testing.T) {
	old := newBed(t, bedOptions{})
	o := old.client(Untyped)
	require.NoError(t, o.Put(t.Context(), key, Meta{}, []byte("value")))
	_, err := o.Exists(t.Context(), key) // a Put has no answer
	require.NoError(t, err)
	b := newBed(t, bedOptions{options: Options{From: &ClientOptions{Address: old.address, Form: Untyped}}})
	_, _, err = b.client(Located).Get(t.Context(), key, nil)
	require.ErrorIs(t, err, ErrMiss)
}

// TestLyingSource: a source that announces too much, or answers nothing that can be read, is a miss.
func TestLyingSource(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		c, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = c.Read(make([]byte, Located.RequestSize()))
		_, _ = c.Write(appendWords(nil, 200, 1<<31-1, 1, 2, 0, 0, 0, 0, 0))
		_ = c.Close()
	}()
	b := newBed(t, bedOptions{options: Options{From: &ClientOptions{Address: l.Addr().String(), MaxValue: 1000}}})
	_, _, err = b.client(Located).Get(t.Context(), key, nil)
	require.ErrorIs(t, err, ErrMiss)
	<-asked
	require.NoError(t, l.Close())
	b.server.Shutdown(context.Background())
	require.Contains(t, b.log.String(), "asked in vain")
}

// marked is a Store whose values can be told from those of another server: the first byte of what it gets is an x.
type marked struct{ Store }

func (m marked) Get(ctx context.Context, k tier.Key, use func(o tier.Object, b []byte) error) error {
	return m.Store.Get(ctx, k, func(o tier.Object, b []byte) error {
		b = bytes.Clone(b)
		b[0] = 'x'
		return use(o, b)
	})
}

// TestValueOfASourceIsSentFromMemory: a value that was stored is not kept on the heap while a client takes
// it, which may be slow.
func TestValueOfASourceIsSentFromMemory(t *testing.T) {
	old := newBed(t, bedOptions{})
	o := old.client(Located)
	require.NoError(t, o.Put(t.Context(), key, meta, []byte("value")))
	_, err := o.Exists(t.Context(), key) // a Put has no answer
	require.NoError(t, err)
	opened := make(chan *tier.Store, 1)
	b := newBed(t, bedOptions{options: Options{
		From: &ClientOptions{Address: old.address},
		Open: func(net.Conn, func()) (Store, error) { return marked{Over(<-opened)}, nil },
	}})
	opened <- b.store
	_, v, err := b.client(Located).Get(t.Context(), key, nil)
	require.NoError(t, err)
	require.Equal(t, "xalue", string(v))
}

// TestSourceWithoutRoom: what is too large to be stored is answered all the same.
func TestSourceWithoutRoom(t *testing.T) {
	old := newBed(t, bedOptions{size: 8 << 20})
	value := bytes.Repeat([]byte("v"), 2<<20)
	o := old.client(Located)
	require.NoError(t, o.Put(t.Context(), key, meta, value))
	_, _, err := o.Get(t.Context(), key, nil) // a Put has no answer
	require.NoError(t, err)
	b := newBed(t, bedOptions{options: Options{From: &ClientOptions{Address: old.address}}})
	for range 2 {
		p, v, err := b.client(Located).Get(t.Context(), key, nil)
		require.NoError(t, err)
		require.Equal(t, meta, p.Meta)
		require.True(t, bytes.Equal(value, v))
	}
}

// TestWhoWaitsForASourceDoesNotTryItAgain: when the connections to a source have failed, clients that waited
// for one of them get a miss at once.
func TestWhoWaitsForASourceDoesNotTryItAgain(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var accepted []net.Conn
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if accepted = append(accepted, c); len(accepted) >= sourceClients {
				for _, c := range accepted {
					_ = c.Close() // a second time is fine
				}
			}
		}
	}()
	b := newBed(t, bedOptions{options: Options{From: &ClientOptions{Address: l.Addr().String()}}})
	var asking sync.WaitGroup
	for range 4 * sourceClients {
		c := b.client(Located)
		asking.Go(func() {
			_, _, err := c.Get(t.Context(), key, nil)
			assert.ErrorIs(t, err, ErrMiss)
		})
	}
	asking.Wait()
	require.NoError(t, l.Close())
	<-closed
	require.Len(t, accepted, sourceClients)
}
