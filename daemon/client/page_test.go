package client

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/wire"
	"github.com/ringcache/ringcache/internal/wiredoc"
)

// exchange returns the whole exchange of the page: requests, each with its reply.
func exchange(t *testing.T) (requests, replies []wiredoc.Example) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "daemon.md"))
	require.NoError(t, err)
	examples, err := wiredoc.Parse(string(text))
	require.NoError(t, err)
	for i, e := range examples {
		if e.Kind == wiredoc.Request && examples[i+1].Kind == wiredoc.Reply {
			requests, replies = append(requests, e), append(replies, examples[i+1])
		}
	}
	require.Greater(t, len(requests), 10)
	return requests, replies
}

// TestClientSaysThePage: a client sends the bytes of the page, and understands the answers.
func TestClientSaysThePage(t *testing.T) {
	requests, replies := exchange(t)
	socket := newFake(t, nil).socket + "2"
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	defer l.Close()
	done := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			done <- err
			return
		}
		defer conn.Close()
		r := wire.NewReader(conn, wire.MaxRequest)
		for i, q := range requests {
			body, err := r.Next()
			if err == nil && !bytes.Equal(body, q.Frame[4:]) {
				err = fmt.Errorf("request of line %d: got %x", q.Line, body)
			}
			if err == nil {
				_, err = conn.Write(replies[i].Frame)
			}
			if err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	var hello wire.Request
	require.NoError(t, wire.DecodeRequest(requests[0].Frame[4:], &hello))
	c, err := Dial(t.Context(), Options{Socket: socket, Session: hello.Session, Name: hello.Client, Fingerprint: hello.Fingerprint})
	require.NoError(t, err)
	defer c.Close()
	space, err := hello.Fingerprint.Space()
	require.NoError(t, err)
	require.Equal(t, space, c.Hello().Space)
	for i, e := range requests[1:] {
		var q wire.Request
		require.NoError(t, wire.DecodeRequest(e.Frame[4:], &q))
		if q.Op != wire.Clear && q.Space != "" {
			q.Space = "" // the client knows it
		}
		var got, want wire.Reply
		require.NoError(t, c.Do(t.Context(), &q, &got))
		require.NoError(t, wire.DecodeReply(replies[i+1].Frame[4:], &want))
		require.Equal(t, want.Items, got.Items)
		require.Equal(t, want.State, got.State)
	}
	require.NoError(t, <-done)
}
