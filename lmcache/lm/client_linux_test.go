package lm

import (
	"context"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/tier"
)

// answering is a server that answers each connection by given bytes, and then closes it.
func answering(t *testing.T, answers ...[]byte) *Client {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, a := range answers {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.ReadFull(c, make([]byte, Located.RequestSize()))
			_, _ = c.Write(a)
			_ = c.Close()
		}
	}()
	c := NewClient(ClientOptions{Address: l.Addr().String(), MaxValue: 1000})
	t.Cleanup(func() {
		assert.NoError(t, c.Close())
		assert.NoError(t, l.Close())
		<-done
	})
	return c
}

// TestLyingServers: a client believes no length, and begins anew behind an answer that can't be.
func TestLyingServers(t *testing.T) {
	reply := func(words ...int32) []byte { return appendWords(nil, words...) }
	for name, x := range map[string]struct {
		answer []byte
		want   error
	}{
		"nothing":         {nil, io.ErrUnexpectedEOF},
		"half a header":   {reply(200, 5), io.ErrUnexpectedEOF},
		"no value":        {reply(200, 5, 1, 2, 5, 0, 0, 0, 0), io.ErrUnexpectedEOF},
		"half a value":    {append(reply(200, 5, 1, 2, 5, 0, 0, 0, 0), "abc"...), io.ErrUnexpectedEOF},
		"negative length": {reply(200, -1, 1, 2, 5, 0, 0, 0, 0), nil},
		"huge length":     {reply(200, 1<<31-1, 1, 2, 5, 0, 0, 0, 0), tier.ErrTooLarge},
		"a miss of bytes": {append(reply(400, 3, 1, 2, 5, 0, 0, 0, 0), "abc"...), nil},
		"unknown code":    {reply(500, 0, 1, 2, 5, 0, 0, 0, 0), nil},
	} {
		c := answering(t, x.answer, append(reply(200, 1, 1, 2, 1, 0, 0, 0, 0), 'v'))
		_, _, err := c.Get(t.Context(), key, nil)
		require.Error(t, err, name)
		require.NotErrorIs(t, err, ErrMiss, name)
		if x.want != nil {
			require.ErrorIs(t, err, x.want, name)
		}
		_, v, err := c.Get(t.Context(), key, nil)
		require.NoError(t, err, name)
		require.Equal(t, "v", string(v), name)
	}
	c := answering(t, reply(200, 7, 1, 2, 0, 0, 0, 0, 0))
	_, err := c.Exists(t.Context(), key)
	require.Error(t, err)
	c = answering(t, reply(400, 0, 1, 2, 0, 0, 0, 0, 0))
	require.Error(t, c.Health(t.Context()))
}

func TestClientsContext(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	c := NewClient(ClientOptions{Address: l.Addr().String()})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		raw, err := l.Accept() // and never answers
		if err == nil {
			_, _ = io.ReadFull(raw, make([]byte, Located.RequestSize()))
			cancel()
			_, _ = raw.Read(make([]byte, 1))
			_ = raw.Close()
		}
	}()
	_, err = c.Exists(ctx, key)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, c.Close())
	_, err = c.Exists(t.Context(), key)
	require.ErrorIs(t, err, net.ErrClosed)
}

func TestClientRefusesWhatCantBeSent(t *testing.T) {
	c := NewClient(ClientOptions{Address: "127.0.0.1:1"})
	require.Error(t, c.Put(t.Context(), string(make([]byte, 151)), meta, nil))
	require.Error(t, c.Put(t.Context(), key, Meta{Format: 9}, nil))
	require.NoError(t, c.Close())
}
