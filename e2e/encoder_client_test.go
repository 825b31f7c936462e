//go:build e2e

package e2e

import (
	"context"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/encoder/wire"
)

// gone waits for the end of a server that something has killed.
func (s *cacheServer) gone() {
	s.t.Helper()
	require.Error(s.t, s.wait())
}

func (s *cacheServer) client() (context.Context, *wire.Client) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	s.t.Cleanup(cancel)
	c, err := wire.Dial(ctx, wire.ClientOptions{Socket: s.socket, Name: "e2e"})
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
