//go:build linux

package daemon

import (
	"net"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/internal/fair"
	"github.com/ringcache/ringcache/daemon/wire"
)

// TestAnotherProtocol does what the server of another protocol does, in the registry and rooms of a daemon. Its session
// was shown as one of ours, and a process had a share of the rooms for each protocol.
func TestAnotherProtocol(t *testing.T) {
	rooms := newRooms()
	b := newBed(t, func(b *bed) { b.so.rooms = rooms })
	ours := b.hello(session1)

	l, err := net.Listen("unix", filepath.Join(filepath.Dir(b.socket), "kv"))
	require.NoError(t, err)
	defer l.Close()
	conn, err := net.Dial("unix", l.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	accepted, err := l.Accept()
	require.NoError(t, err)
	client, err := b.server.registry.Identify(accepted)
	require.NoError(t, err)
	user, err := b.server.registry.Join(client, "kv", session1, "another", func() { t.Error("taken over by our protocol") })
	require.NoError(t, err)

	var names []string
	for _, c := range ours.ok(wire.Request{Op: wire.Stat, List: true}).Clients {
		names = append(names, c.Session)
	}
	require.ElementsMatch(t, []string{session1, "kv/" + session1}, names)

	b.server.mu.Lock()
	var part *fair.Part
	for c := range b.server.conns {
		part = c.work.part
	}
	b.server.mu.Unlock()
	require.Same(t, part, &client.Part, "it is one process")
	require.True(t, rooms.Requests.TryAcquire(&client.Part.Requests, 1<<20))
	require.EqualValues(t, 1<<20, b.server.Counters().Messages)
	rooms.Requests.Release(&client.Part.Requests, 1<<20)

	user.Leave()
	client.Leave()
}
