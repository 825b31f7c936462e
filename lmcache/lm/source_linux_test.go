package lm

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDrainedOnDemand: what clients ask for is taken over from another server, with its description, and is here when
// that one has gone.
func TestDrainedOnDemand(t *testing.T) {
	for _, f := range []Form{Located, Typed, Untyped} {
		old := newBed(t, bedOptions{})
		ctx := t.Context()
		require.NoError(t, old.client(f).Put(ctx, key, meta, []byte("value")))
		require.NoError(t, old.client(f).Put(ctx, "m@1@0@2@half", meta, nil))
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
	require.NoError(t, old.client(Untyped).Put(t.Context(), key, Meta{}, []byte("value")))
	b := newBed(t, bedOptions{options: Options{From: &ClientOptions{Address: old.address, Form: Untyped}}})
	_, _, err := b.client(Located).Get(t.Context(), key, nil)
	require.ErrorIs(t, err, ErrMiss)
}

// TestLyingSource: a source that announces too much, or answers nothing that can be read, is a miss.
func TestLyingSource(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		for range 1 {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, Located.RequestSize()))
			_, _ = c.Write(appendWords(nil, 200, 1<<31-1, 1, 2, 0, 0, 0, 0, 0))
			_ = c.Close()
		}
	}()
	b := newBed(t, bedOptions{options: Options{From: &ClientOptions{Address: l.Addr().String(), MaxValue: 1000}}})
	_, _, err = b.client(Located).Get(t.Context(), key, nil)
	require.ErrorIs(t, err, ErrMiss)
	<-asked
	require.NoError(t, l.Close())
	b.server.Shutdown(context.Background())
	require.Contains(t, b.log.String(), "asked in vain")
}
