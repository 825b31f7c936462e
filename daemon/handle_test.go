//go:build linux

package daemon

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/wire"
)

// TestRoundTrip: what one session stores another one reads, in place.
func TestRoundTrip(t *testing.T) {
	b := newBed(t, nil)
	p, q := b.hello(session1), b.hello("session-2")
	r := p.hello(session1) // again: nothing is new
	require.Equal(t, "ringcache test", r.Server)
	require.Equal(t, b.level.Segment().Name, r.Segment.Name)
	require.Equal(t, b.level.Segment().Size, r.Segment.Size)
	require.Equal(t, b.level.Segment().Generation, r.Segment.Generation)
	require.NotZero(t, r.Segment.Inode)
	require.Equal(t, &wire.Limits{Names: wire.MaxNames, Seconds: 3600, Held: b.level.Usage().Capacity / 2, Leases: 16}, r.Limits)

	require.Equal(t, all(wire.StatusMiss, 2), statuses(q.pin("l", "a", "b")))
	items := p.reserve("w", "a", "b")
	require.Equal(t, all(wire.StatusReserved, 2), statuses(items))
	require.Equal(t, all(wire.StatusPending, 2), statuses(q.pin("l", "a", "b")))
	require.Equal(t, all(wire.StatusPending, 2), statuses(q.reserve("w", "a", "b")))
	for i, name := range []string{"a", "b"} {
		b.write(items[i], name)
	}
	require.Equal(t, all(wire.StatusOK, 2), statuses(p.commit("w", false, "a", "b")))
	require.Equal(t, all(wire.StatusExists, 2), statuses(p.reserve("w", "a", "b")))
	hits := q.pin("l", "a", "x", "b")
	require.Equal(t, []wire.Status{wire.StatusHit, wire.StatusMiss, wire.StatusHit}, statuses(hits))
	b.holds(hits[0], "a")
	b.holds(hits[2], "b")
	require.Equal(t, "note of a", string(hits[0].Note))
	require.Equal(t, items[0].Offset, hits[0].Offset)
	require.Equal(t, []wire.Status{wire.StatusHit, wire.StatusEnded}, statuses(q.get("l", "a", "x")))
	require.NoError(t, b.server.registry.Check())
	q.release("l")
	b.free()
}
