package client

import (
	"context"
	"encoding/binary"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/wire"
)

func frameOf(body []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// TestStalledDaemon: a daemon that reads nothing gets half of a request, and the next call does not send it
// the rest.
func TestStalledDaemon(t *testing.T) {
	socket := newFake(t, nil).socket + "2"
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	defer l.Close()
	hello := func(r *wire.Reader, conn net.Conn) {
		body, err := r.Next()
		require.NoError(t, err)
		var q wire.Request
		require.NoError(t, wire.DecodeRequest(body, &q))
		out, err := wire.AppendReply(nil, &wire.Reply{ID: q.ID, Version: wire.Version, Segment: &wire.Segment{}, Limits: &wire.Limits{}})
		require.NoError(t, err)
		_, err = conn.Write(out)
		require.NoError(t, err)
	}
	accepted := make(chan net.Conn, 1)
	accept := func() {
		conn, err := l.Accept()
		require.NoError(t, err)
		hello(wire.NewReader(conn, wire.MaxRequest), conn)
		accepted <- conn
	}
	go accept()
	c, err := Dial(t.Context(), Options{Socket: socket, Name: "test"})
	require.NoError(t, err)
	defer c.Close()
	first := <-accepted
	defer first.Close()

	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = first.Read(make([]byte, 1)) // the rest is more than the socket takes
		cancel()
	}()
	_, err = c.Pin(ctx, wire.Request{Lease: "l", Space: "s", Names: []string{strings.Repeat("x", wire.MaxRequest-1000)}})
	require.ErrorIs(t, err, context.Canceled)

	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		r := wire.NewReader(conn, wire.MaxRequest)
		hello(r, conn)
		body, err := r.Next()
		var q wire.Request
		if err == nil && wire.DecodeRequest(body, &q) == nil {
			out, _ := wire.AppendReply(nil, &wire.Reply{ID: q.ID, Items: []wire.Item{{Status: wire.StatusMiss}}})
			_, _ = conn.Write(out)
		}
		accepted <- conn
	}()
	ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	items, err := c.Pin(ctx, wire.Request{Lease: "l", Space: "s", Names: []string{"a"}})
	require.NoError(t, err)
	require.Equal(t, []wire.Item{{Status: wire.StatusMiss}}, items)
	require.NoError(t, (<-accepted).Close())
}

// TestDaemonThatLies: a reply that can't be read, or is of no request, ends the connection, and the call
// with an error.
func TestDaemonThatLies(t *testing.T) {
	replies := map[string][]byte{
		"no frame":        {255, 255, 255, 255, 1, 2, 3},
		"no reply":        frameOf([]byte{0x80}),
		"of the future":   frameOf([]byte("\x81\xa2id\xcd\x7f\xff")),
		"no id":           frameOf([]byte("\x81\xa5error\x81\xa4kind\xa4busy")),
		"half and end":    {100, 0, 0, 0, 1, 2},
		"too large":       {1, 0, 128, 0},
		"another's hello": frameOf([]byte("\x82\xa2id\x01\xa7version\x02")),
	}
	for name, reply := range replies {
		t.Run(name, func(t *testing.T) {
			socket := newFake(t, nil).socket + "2"
			l, err := net.Listen("unix", socket)
			require.NoError(t, err)
			defer l.Close()
			done := make(chan struct{})
			go func() {
				defer close(done)
				conn, err := l.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				_, _ = wire.NewReader(conn, wire.MaxRequest).Next()
				_, _ = conn.Write(reply)
				if name != "half and end" {
					_, _ = conn.Read(make([]byte, 1)) // until the client hangs up
				}
			}()
			_, err = Dial(t.Context(), Options{Socket: socket, Name: "test"})
			require.ErrorContains(t, err, "daemon: ")
			if name == "another's hello" {
				require.ErrorContains(t, err, "version 2 of the protocol, and this client speaks version 1")
			}
			<-done
		})
	}
}
