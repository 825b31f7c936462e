package zmq

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/engine/enginetest"
)

// TestClaimedIdentity: who claims the identity of a peer neither ends its connection nor
// gets its messages.
func TestClaimedIdentity(t *testing.T) {
	s := router(t, Transport{}, "tcp://127.0.0.1:0")
	first, second := dealer(t, s, "x"), dealer(t, s, "x")
	names := map[string]*enginetest.Peer{}
	for _, d := range []*enginetest.Peer{first, second} {
		require.NoError(t, d.Send([]byte("hello")))
		m := recv(t, s)
		require.Equal(t, "x", m.Identity)
		names[m.Peer] = d
	}
	require.Len(t, names, 2)
	for name, d := range names {
		require.NoError(t, s.Send(name, []byte(name)))
		m, err := d.Recv()
		require.NoError(t, err)
		require.Equal(t, [][]byte{[]byte(name)}, m)
	}
	require.NoError(t, first.Close())
	m := recv(t, s)
	require.True(t, m.Gone)
	require.Equal(t, first, names[m.Peer], "the other is still connected")
}

// TestIdlePeersFillTheTable: when there is no room the peer that said nothing goes, the
// oldest first; who has spoken goes only where anybody can connect.
func TestIdlePeersFillTheTable(t *testing.T) {
	for limit, most := range map[int64]int{0: maxConns, 1 << 10: maxUntrusted} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			s, err := Transport{}.Router("tcp://127.0.0.1:0", limit)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			say := func(d *enginetest.Peer) {
				require.NoError(t, d.Send([]byte("hello")))
				require.False(t, recv(t, s).Gone)
			}
			connect := func() *enginetest.Peer {
				d := dealer(t, s, "")
				require.NoError(t, enginetest.Wait(deadline(t), func() bool { // it has greeted on both sides
					k := s.(*socket)
					k.mu.Lock()
					defer k.mu.Unlock()
					return len(k.peers) == len(k.conns)
				}))
				return d
			}
			engine := connect()
			say(engine)
			var idle []*enginetest.Peer
			for range most - 1 {
				idle = append(idle, connect())
			}
			gone := func(d *enginetest.Peer) {
				t.Helper()
				_, err := d.Recv()
				require.Error(t, err)
				require.True(t, recv(t, s).Gone)
			}
			for i := range 3 {
				next := connect()
				gone(idle[i])
				say(next) // which makes it one that has spoken
				idle[i] = next
			}
			for _, d := range idle[3:] {
				say(d)
			}
			if limit == 0 {
				ctx := deadline(t)
				_, err := enginetest.Dealer(ctx, s.Endpoint(), "")
				require.Error(t, err, "turned away")
				require.NoError(t, ctx.Err())
				say(engine)
				return
			}
			say(engine)
			connect()
			gone(idle[0])
			say(engine)
		})
	}
}
