//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/client"
	"github.com/ringcache/ringcache/daemon/wire"
)

// gone waits for the end of a server that something has killed.
func (s *cacheServer) gone() {
	s.t.Helper()
	require.Error(s.t, s.wait())
}

func (s *cacheServer) client() (context.Context, *client.Client) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	s.t.Cleanup(cancel)
	c, err := client.Dial(ctx, client.Options{Socket: s.socket, Name: "e2e"})
	require.NoError(s.t, err)
	s.t.Cleanup(func() { require.NoError(s.t, c.Close()) })
	return ctx, c
}

// overwrite copies the bytes of an object over those of another one, in the memory from which engines load.
func (s *cacheServer) overwrite(name, with string) {
	s.t.Helper()
	ctx, c := s.client()
	m, err := c.Map(ctx)
	require.NoError(s.t, err)
	items, err := c.Pin(ctx, wire.Request{Lease: "overwrite", Space: space, Names: []string{name, with}})
	require.NoError(s.t, err)
	to, err := m.Bytes(items[0])
	require.NoError(s.t, err, "%+v", items)
	from, err := m.Bytes(items[1])
	require.NoError(s.t, err, "%+v", items)
	require.NotEqual(s.t, to, from)
	require.Equal(s.t, len(to), copy(to, from))
	require.NoError(s.t, c.Release(ctx, wire.Request{Leases: []string{"overwrite"}}))
	require.NoError(s.t, m.Close())
}

// state is what the server has.
func (s *cacheServer) state() (*wire.State, []wire.Lease) {
	s.t.Helper()
	ctx, c := s.client()
	p, err := c.Stat(ctx, wire.Request{List: true})
	require.NoError(s.t, err)
	require.NoError(s.t, c.Close())
	return p.State, p.Leases
}

// idle verifies that engines that have ended left nothing behind.
func (s *cacheServer) idle() {
	s.t.Helper()
	var leases []wire.Lease
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		var st *wire.State
		if st, leases = s.state(); len(leases) == 0 && st.Leases == 0 {
			break
		}
		require.True(s.t, time.Now().Before(end), "engines have ended, and left %+v", leases)
	}
}

// pinned is what engines keep in place.
func (s *cacheServer) pinned() (n int) {
	s.t.Helper()
	_, leases := s.state()
	for _, l := range leases {
		n += l.Pinned + l.Reserved
	}
	return n
}

// has tells which objects of the tests' space are in some level.
func (s *cacheServer) has(names ...string) (has []bool) {
	s.t.Helper()
	ctx, c := s.client()
	var items []wire.Item
	require.Eventually(s.t, func() bool {
		p, err := c.Stat(ctx, wire.Request{Space: space, Names: names})
		if err != nil {
			return false
		}
		items = p.Items
		return !slices.ContainsFunc(items, func(v wire.Item) bool { return v.Status == wire.StatusPending })
	}, patience, time.Millisecond, "objects are not looked up")
	require.Len(s.t, items, len(names))
	for _, v := range items {
		has = append(has, v.Status == wire.StatusHit)
	}
	require.NoError(s.t, c.Close())
	return has
}

// press stores other objects, and keeps them, until memory is full: whatever may go has gone. Then they may
// go.
func (s *cacheServer) press() {
	s.t.Helper()
	ctx, c := s.client()
	m, err := c.Map(ctx)
	require.NoError(s.t, err)
	full := false
	for i := 0; !full; i++ {
		name := fmt.Sprint("other", time.Now().UnixNano(), i)
		items, err := c.Reserve(ctx, wire.Request{Lease: "press", Space: "press",
			Objects: []wire.Object{{Name: name, Size: 8 << 10, Note: []byte("uint8 8192")}}})
		require.NoError(s.t, err)
		if full = items[0].Status == wire.StatusFull; full {
			require.Greater(s.t, i, 16)
			break
		}
		require.NoError(s.t, m.Write(items[0], bytes.Repeat([]byte{0xEE}, 8<<10)))
		_, err = c.Commit(ctx, wire.Request{Lease: "press", Space: "press", Names: []string{name}, Keep: true})
		require.NoError(s.t, err)
	}
	require.NoError(s.t, c.Release(ctx, wire.Request{Leases: []string{"press"}}))
	require.NoError(s.t, m.Close())
	require.NoError(s.t, c.Close())
}

// clear deletes all objects of the tests' space.
func (s *cacheServer) clear() {
	s.t.Helper()
	ctx, c := s.client()
	require.NoError(s.t, c.Clear(ctx, space))
	require.Eventually(s.t, func() bool {
		p, err := c.Stat(ctx, wire.Request{})
		return err == nil && !p.State.Clearing
	}, patience, time.Millisecond)
	require.NoError(s.t, c.Close())
}
