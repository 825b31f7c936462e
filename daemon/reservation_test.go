//go:build linux

package daemon

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/wire"
)

// reserveFor reserves objects for a time.
func (p *peer) reserveFor(seconds uint32, lease string, names ...string) []wire.Item {
	p.Helper()
	return p.ok(wire.Request{Op: wire.Reserve, Lease: lease, Space: space, Objects: objects(names...), Seconds: seconds}).Items
}

// TestReservationsEnd: ten minutes after the time of their lease, unless their holder extends it. Until then
// nobody gets the room, and a late commit publishes what was written to it.
func TestReservationsEnd(t *testing.T) {
	b := newBed(t, nil)
	hung, other := newPuppet(t).hello(b.socket, session1), b.hello("session-2")
	held := hung.reserveFor(60, "w", "a", "b", "c")
	require.Equal(t, all(wire.StatusReserved, 3), statuses(held))
	b.pass(62*time.Second, "the time of the lease passes", func() bool { return b.lease(session1+"/w").Seconds == 0 })
	require.Equal(t, all(wire.StatusPending, 1), statuses(other.reserve("w", "a")), "it may be writing yet")
	require.Equal(t, held, hung.get("w", "a", "b", "c"))
	b.write(held[2], "c")
	require.Equal(t, all(wire.StatusOK, 1), statuses(hung.commit("w", false, "c")), "late, and in its own room")
	b.holds(other.pin("l", "c")[0], "c")
	other.release("l")
	b.clock.pass(9 * time.Minute)
	b.server.registry.Look()
	require.Equal(t, all(wire.StatusPending, 1), statuses(other.reserve("w", "a")))

	b.pass(time.Minute, "the end of reservations", func() bool { return b.lease(session1+"/w") == nil })
	require.Equal(t, uint64(1), b.server.Counters().EndedByTime)
	require.Equal(t, all(wire.StatusEnded, 3), statuses(hung.get("w", "a", "b", "c")))
	require.Equal(t, all(wire.StatusReserved, 1), statuses(other.reserve("w", "a")), "it is free")
	require.Equal(t, all(wire.StatusEnded, 2), statuses(hung.commit("w", false, "a", "b")), "nothing that came too late is published")
	require.Equal(t, all(wire.StatusEnded, 1), statuses(hung.commit("w", true, "a")))
	require.Equal(t, all(wire.StatusEnded, 2), statuses(hung.abort("w", "a", "b")))
	require.Equal(t, all(wire.StatusMiss, 1), statuses(other.pin("l", "b")))
	require.Equal(t, all(wire.StatusReserved, 1), statuses(hung.reserve("w", "b")), "and may be reserved anew")
	hung.release("w")
	other.release("w")
	b.free()
}

// TestReservationsAreExtended: whoever asks again keeps the same room, for as long as it likes, also from one
// whose time has passed.
func TestReservationsAreExtended(t *testing.T) {
	b := newBed(t, nil)
	p := b.hello(session1)
	held := p.reserveFor(60, "w", "a")
	for range 40 {
		b.clock.pass(50 * time.Second)
		b.server.registry.Look()
		require.Equal(t, held, p.reserveFor(60, "w", "a"))
	}
	for range 5 {
		b.pass(9*time.Minute, "the time of the lease passes", func() bool { return b.lease(session1+"/w").Seconds == 0 })
		require.Equal(t, held, p.reserveFor(60, "w", "a"))
		require.InDelta(t, 60, b.lease(session1+"/w").Seconds, 2)
		require.NoError(t, b.server.registry.Check())
	}
	b.write(held[0], "a")
	require.Equal(t, all(wire.StatusOK, 1), statuses(p.commit("w", true, "a")))
	b.holds(p.get("w", "a")[0], "a")
	p.release("w")
	b.free()
}

// TestReservationsEndAfterARestart: a client that does not come back, and lives, keeps them for the grace
// time and ten minutes.
func TestReservationsEndAfterARestart(t *testing.T) {
	b := newBed(t, nil)
	hung := newPuppet(t)
	short := hung.hello(b.socket, session1).reserveFor(10, "w", "a")
	hung.hello(b.socket, "session-2").reserveFor(3600, "long", "b")
	b.stop()
	b.clock.pass(time.Hour / 2)
	b.start()
	require.Equal(t, 2, b.waiting())
	b.pass(31*time.Second, "the end of the grace time", func() bool { return b.lease("session-2/long").Seconds == 0 })
	b.clock.pass(9 * time.Minute)
	b.server.registry.Look()
	p := hung.hello(b.socket, session1)
	require.Equal(t, short, p.get("w", "a"))
	require.NoError(t, b.server.registry.Check())
	b.pass(time.Minute, "the end of reservations", func() bool { return b.lease(session1+"/w") == nil })
	require.Equal(t, all(wire.StatusEnded, 1), statuses(p.commit("w", false, "a")))
	require.NotNil(t, b.lease("session-2/long"), "the client believes in the time that it was given")
	b.pass(40*time.Minute, "the end of reservations", func() bool { return b.lease("session-2/long") == nil })
	b.free()
}
