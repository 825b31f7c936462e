//go:build linux

package daemon

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/client"
	"github.com/ringcache/ringcache/daemon/wire"
)

// TestGoClient: the client of package wire works through a server, over a restart over the same segment, and
// over one with another.
func TestGoClient(t *testing.T) {
	b := newBed(t, nil)
	ctx, socket := t.Context(), b.socket
	// again starts the next server at the same socket.
	again := func() {
		b.start()
		require.NoError(t, os.Rename(b.socket, socket))
	}
	c, err := client.Dial(ctx, client.Options{Socket: socket, Name: "test", Dir: b.dir})
	require.NoError(t, err)
	defer c.Close()
	m, err := c.Map(ctx)
	require.NoError(t, err)
	defer m.Close()

	data := bytes.Repeat([]byte("embedding "), 1000)
	reserve := wire.Request{Lease: "l", Space: "s", Objects: []wire.Object{{Name: "a", Size: int64(len(data)), Note: []byte("note")}}, Seconds: 600}
	room, err := c.Reserve(ctx, reserve)
	require.NoError(t, err)
	b.stop()
	again()
	same, err := c.Reserve(ctx, reserve)
	require.NoError(t, err)
	require.Equal(t, room, same, "the reservation is still there")
	require.NoError(t, m.Write(same[0], data))
	names := wire.Request{Lease: "l", Space: "s", Names: []string{"a"}}
	commit := names
	commit.Keep, commit.Seconds = true, 600
	for range 2 {
		items, err := c.Commit(ctx, commit)
		require.NoError(t, err)
		require.Equal(t, []wire.Item{{Status: wire.StatusOK}}, items)
	}
	b.stop()
	again()
	items, err := c.Get(ctx, names)
	require.NoError(t, err)
	require.Equal(t, wire.StatusHit, items[0].Status)
	got, err := m.Read(nil, items[0])
	require.NoError(t, err)
	require.Equal(t, data, got)
	require.Equal(t, "note", string(items[0].Note))
	require.Zero(t, items[0].Offset%64)

	b.stop()
	files, err := filepath.Glob(filepath.Join(b.dir, "pool*"))
	require.NoError(t, err)
	for _, f := range files {
		require.NoError(t, os.Remove(f))
	}
	again()
	_, err = c.Pin(ctx, names)
	require.ErrorIs(t, err, client.ErrSegment)
	fresh, err := c.Map(ctx)
	require.NoError(t, err)
	defer fresh.Close()
	items, err = c.Pin(ctx, names)
	require.NoError(t, err)
	require.Equal(t, []wire.Item{{Status: wire.StatusMiss}}, items)
	require.NoError(t, c.Release(ctx, wire.Request{Leases: []string{"l"}}))
}
