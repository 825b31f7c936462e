//go:build linux

package daemon

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/wire"
	"github.com/ringcache/ringcache/tier"
)

func (b *bed) waiting() int { return b.server.Counters().Waiting }

// TestGrace: pins of before a restart are kept for a while, whatever their time. Who comes back keeps
// them by the normal rules; of the others only reservations stay, for a while.
func TestGrace(t *testing.T) {
	b := newBed(t, nil)
	one := newPuppet(t)
	back, never := b.hello(session1), one.hello(b.socket, "session-2")
	back.store(b, "a", "b")
	for _, p := range []*peer{back, never} {
		p.ok(wire.Request{Op: wire.Pin, Lease: "soon", Space: space, Names: []string{"a"}, Seconds: 10})
		p.ok(wire.Request{Op: wire.Pin, Lease: "late", Space: space, Names: []string{"b"}, Seconds: 600})
	}
	back.reserve("late", "x")
	reserved := never.reserve("late", "y")
	never.reserve("writes", "z")
	b.restart()
	require.Equal(t, 5, b.server.Counters().Recovered)
	require.Equal(t, 5, b.waiting())
	require.InDelta(t, 30, b.lease("session-2/soon").Seconds, 1.5, "at least the grace time")
	require.InDelta(t, 600, b.lease("session-2/late").Seconds, 2.5)
	b.clock.pass(20 * time.Second)
	require.Len(t, b.server.Leases(), 5)
	back = b.hello(session1)
	require.Equal(t, 3, b.waiting())
	require.Equal(t, all(wire.StatusHit, 1), statuses(back.get("soon", "a")))
	b.pass(11*time.Second, "the end of the grace time", func() bool {
		return len(b.server.Leases()) == 3 && b.lease("session-2/late").Pinned == 0
	})
	require.Equal(t, 2, b.waiting())
	require.Nil(t, b.lease(session1+"/soon"), "its time has passed")
	l := b.lease("session-2/late")
	require.Equal(t, wire.Lease{Name: l.Name, Client: "test", PID: one.pid(), Reserved: 1, Bytes: 1000, Waiting: true}, *l)
	require.Equal(t, []wire.Status{wire.StatusHit, wire.StatusReserved}, statuses(back.get("late", "b", "x")))
	require.NoError(t, b.server.registry.Check())

	b.restart() // once more: what is left has another grace time
	b.pass(time.Minute, "the end of the grace time", func() bool { return b.lease(session1+"/late").Pinned == 0 })
	never = one.hello(b.socket, "session-2")
	require.Equal(t, reserved, never.get("late", "y"))
	require.Equal(t, all(wire.StatusOK, 1), statuses(never.commit("late", false, "y")))
	one.kill()
	b.eventually("everything of a dead process ends", func() bool { return b.lease("session-2/writes") == nil })
	b.hello(session1).release("late")
	b.free()
}

// TestTimeThatPassedMeanwhile: a lease whose time passed while there was no daemon has ended.
func TestTimeThatPassedMeanwhile(t *testing.T) {
	b := newBed(t, nil)
	p := b.hello(session1)
	p.store(b, "a")
	p.ok(wire.Request{Op: wire.Pin, Lease: "l", Space: space, Names: []string{"a"}, Seconds: 10})
	p.reserve("w", "x")
	b.stop()
	b.clock.pass(time.Hour)
	b.start()
	require.Equal(t, 1, b.server.Counters().Recovered)
	p = b.hello(session1)
	require.Equal(t, all(wire.StatusEnded, 1), statuses(p.get("l", "a")))
	require.Equal(t, all(wire.StatusReserved, 1), statuses(p.get("w", "x")))
	p.release("w")
	b.free()
}

// strange makes a lease as another program, or an older release, might have.
func (b *bed) strange(id, owner string, until time.Time) {
	b.Helper()
	b.strangers = true
	l, err := b.store.Lease(b.Context(), tier.LeaseOptions{ID: id, Owner: owner, Until: until})
	require.NoError(b, err)
	k := tier.Key{Space: space, Name: "a"}
	require.NoError(b, l.Pin([]tier.Key{k})[0].Err)
	require.NoError(b, l.Reserve([]tier.Object{{Key: tier.Key{Space: space, Name: "of " + id}, Size: 10}})[0].Err)
}

// TestStrangeLeases: what belongs to nobody who could be identified ends with the grace time, reservations and all.
func TestStrangeLeases(t *testing.T) {
	b := newBed(t, nil)
	b.hello(session1).store(b, "a")
	forever := time.Time{}
	id := fmt.Sprint(os.Getpid(), " 0")
	strangers := map[string]string{
		"no-slash":                      "0 0 test",
		"/":                             "",
		"session-8/l":                   "0 0 test",
		"ringcache/session-9/l":         "x y test",
		"ringcache/session-10/l":        "0 0",
		"ringcache/session-12/":         "0 0 test",
		"ringcache//l":                  "0 0 test",
		"/session-13/l":                 id + strings.Repeat("x", 200),
		strings.Repeat("s", 200) + "/l": "-1 5 " + strings.Repeat("s", 100) + " test",
		"other face":                    "kv",
		"bytes \xff":                    "\xfe \xff",
		"kv/session-16/l":               "0 0 another protocol",
		"ringcache/session-14/l":        "0 0 ",
		"ringcache/session-15/l":        "1 1@1 test",
	}
	for id, owner := range strangers {
		b.strange(id, owner, forever)
	}
	b.restart()
	require.Equal(t, len(strangers), b.waiting())
	require.Equal(t, len(strangers), b.server.Counters().Recovered)
	for _, l := range b.hello("session-99").ok(wire.Request{Op: wire.Stat, List: true}).Leases {
		require.True(t, l.Waiting)
		require.Positive(t, l.Seconds)
		require.Equal(t, 1, l.Reserved)
	}
	// Who knows the session is believed, if nobody else can be known to have it.
	p := b.hello("session-14")
	require.Equal(t, all(wire.StatusHit, 1), statuses(p.get("l", "a")))
	b.hello("session-15").release("l")
	require.NoError(t, b.server.registry.Check())
	b.pass(31*time.Second, "the end of the grace time", func() bool { return len(b.server.Leases()) == 1 })
	require.Equal(t, all(wire.StatusReserved, 1), statuses(p.get("l", "of ringcache/session-14/l")))
	p.release("l")
	b.free()
}

// TestSessionOfTwoProcesses: leases of one session with two processes can't be; then the session is nobody's.
func TestSessionOfTwoProcesses(t *testing.T) {
	b := newBed(t, nil)
	one, two := newPuppet(t), newPuppet(t)
	p := one.hello(b.socket, "session-2")
	p.store(b, "a")
	p.pin("l", "a")
	q := two.hello(b.socket, "session-3")
	q.pin("l", "a")
	owner := ""
	for _, l := range b.store.Leases() {
		if l.ID == "ringcache/session-3/l" {
			owner = l.Owner
		}
	}
	b.strange("ringcache/session-2/m", owner, time.Time{})
	b.restart()
	require.Equal(t, 3, b.waiting())
	require.NoError(t, b.server.registry.Check())
	b.pass(31*time.Second, "the end of the grace time", func() bool { return len(b.server.Leases()) == 0 })
	b.free()
}

// TestProcessThatCantBeIdentified: it has the grace time to come back after each connection, and to whoever
// says so its session is given.
func TestProcessThatCantBeIdentified(t *testing.T) {
	b := newBed(t, nil)
	b.hello("session-9").store(b, "a")
	b.strange("ringcache/session-2/l", "0 0 test", b.clock.now().Add(time.Hour))
	b.restart()
	one := newPuppet(t)
	p := one.hello(b.socket, "session-2")
	require.Equal(t, 0, b.waiting())
	require.NoError(t, p.conn.Close())
	b.eventually("the connection is gone", func() bool { return b.server.Counters().Connections == 0 })
	b.clock.pass(35 * time.Second)
	b.server.registry.Look()
	require.NotNil(t, b.lease("session-2/l"), "it has a process now")
	one.kill()
	b.eventually("the end of the process", func() bool { return b.lease("session-2/l") == nil })
	b.free()
}
