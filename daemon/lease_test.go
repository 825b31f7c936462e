//go:build linux

package daemon

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/wire"
	"github.com/ringcache/ringcache/encoder"
	"github.com/ringcache/ringcache/tier"
)

// pass lets time pass, and waits until the server has seen it.
func (b *bed) pass(d time.Duration, what string, is func() bool) {
	b.Helper()
	b.clock.pass(d)
	b.server.registry.Look()
	b.eventually(what, is)
}

func (b *bed) lease(name string) *wire.Lease {
	for _, l := range b.server.Leases() {
		if l.Name == name {
			return &l
		}
	}
	return nil
}

// TestLeasesOfNames: with names, a list says how many of them each lease has.
func TestLeasesOfNames(t *testing.T) {
	b := newBed(t, nil)
	p := b.hello(session1)
	p.store(b, "a", "b", "c")
	p.pin("pins", "a", "b")
	p.reserve("reserves", "d")
	p.pin("others", "c")
	has := func(q wire.Request) map[string]int {
		out := map[string]int{}
		for _, l := range p.ok(q).Leases {
			out[l.Name] = l.Names
		}
		return out
	}
	require.Equal(t, map[string]int{session1 + "/pins": 1, session1 + "/reserves": 1, session1 + "/others": 0},
		has(wire.Request{Op: wire.Stat, List: true, Space: space, Names: []string{"b", "d", "none"}}))
	require.Equal(t, map[string]int{session1 + "/pins": 1, session1 + "/reserves": 0, session1 + "/others": 0},
		has(wire.Request{Op: wire.Stat, List: true, Space: space, Names: []string{"a", "a"}}), "fewer names than the lease has")
	require.Equal(t, map[string]int{session1 + "/pins": 0, session1 + "/reserves": 0, session1 + "/others": 0}, has(wire.Request{Op: wire.Stat, List: true}))
	require.Empty(t, has(wire.Request{Op: wire.Stat, Space: space, Names: []string{"b"}}))
	p.release("pins", "reserves", "others")
}

// TestTimes: pins end with the time of their lease, which asking again extends. Reservations end later.
func TestTimes(t *testing.T) {
	b := newBed(t, nil)
	p := b.hello(session1)
	p.store(b, "a", "b")
	pin := func(lease string, seconds uint32, names ...string) {
		r := p.ok(wire.Request{Op: wire.Pin, Lease: lease, Space: space, Names: names, Seconds: seconds})
		require.Equal(t, all(wire.StatusHit, len(names)), statuses(r.Items))
	}
	pin("short", 10, "a")
	pin("ordinary", 0, "a")
	pin("cut", 1e9, "a", "b")
	require.InDelta(t, 10, b.lease(session1+"/short").Seconds, 1.5)
	require.InDelta(t, 300, b.lease(session1+"/ordinary").Seconds, 1.5)
	require.InDelta(t, 3600, b.lease(session1+"/cut").Seconds, 1.5)
	b.clock.pass(8 * time.Second)
	pin("short", 10, "b")
	b.clock.pass(8 * time.Second) // 16 after the first, 8 after the second
	require.Equal(t, all(wire.StatusHit, 2), statuses(p.get("short", "a", "b")), "asking again extends all of it")
	b.pass(4*time.Second, "the end of a lease", func() bool { return b.lease(session1+"/short") == nil })
	require.Equal(t, all(wire.StatusEnded, 2), statuses(p.get("short", "a", "b")))
	require.Equal(t, uint64(1), b.server.Counters().EndedByTime)
	require.NoError(t, b.server.registry.Check())

	require.Equal(t, all(wire.StatusReserved, 3), statuses(p.reserve("w", "x", "y", "z")))
	pin("w", 0, "a")
	b.pass(time.Hour+time.Minute, "the end of all pins", func() bool { return len(b.server.Leases()) == 1 && b.lease(session1+"/w").Pinned == 0 })
	l := b.lease(session1 + "/w")
	require.Equal(t, wire.Lease{Name: session1 + "/w", Client: "test", PID: l.PID, Reserved: 3, Bytes: 3000}, *l)
	require.NoError(t, b.server.registry.Check())
	require.Equal(t, all(wire.StatusReserved, 3), statuses(p.get("w", "x", "y", "z")))
	require.Equal(t, all(wire.StatusOK, 1), statuses(p.commit("w", false, "x")))
	require.Equal(t, all(wire.StatusEnded, 1), statuses(p.get("w", "x")))
	require.Equal(t, all(wire.StatusOK, 1), statuses(p.commit("w", true, "y")), "what is kept has a time again")
	require.InDelta(t, 300, b.lease(session1+"/w").Seconds, 1.5)
	require.Equal(t, []wire.Status{wire.StatusHit, wire.StatusReserved}, statuses(p.get("w", "y", "z")))
	require.NoError(t, b.server.registry.Check())
	b.pass(time.Hour, "the end of pins", func() bool { return b.lease(session1+"/w").Pinned == 0 })
	pin("w", 20, "a")
	require.InDelta(t, 20, b.lease(session1+"/w").Seconds, 1.5, "a lease that has lapsed can be used again")
	b.pass(time.Minute, "the end of pins", func() bool { return b.lease(session1+"/w").Pinned == 0 })
	require.Equal(t, all(wire.StatusOK, 1), statuses(p.abort("w", "z")))
	b.free()
}

// TestTheStoresTimeComesFirst: the memory level ends a lease in the very call that the server has not looked before.
func TestTheStoresTimeComesFirst(t *testing.T) {
	b := newBed(t, nil)
	p := b.hello(session1)
	p.store(b, "a", "b")
	p.pin("l", "a")
	p.reserve("w", "x")
	b.clock.pass(time.Hour)
	b.level.Usage() // here
	b.level.Leases()
	require.Equal(t, all(wire.StatusHit, 1), statuses(p.pin("l", "b")))
	require.Equal(t, []wire.Status{wire.StatusEnded, wire.StatusHit}, statuses(p.get("l", "a", "b")))
	require.Equal(t, all(wire.StatusReserved, 1), statuses(p.reserve("w", "y")))
	require.NoError(t, b.server.registry.Check())
	p.release("l", "w", "l")
	b.free()
}

// TestReservationsOutliveAClockAhead: if the memory level believes that the time of a lease has passed, and
// the server does not, the pins are gone, and reservations are not.
func TestReservationsOutliveAClockAhead(t *testing.T) {
	ahead := &clock{at: time.Unix(1_800_000_000, 0)}
	b := newBed(t, func(b *bed) { b.mo.Now = ahead.now })
	p := b.hello(session1)
	p.store(b, "a", "b")
	p.ok(wire.Request{Op: wire.Pin, Lease: "l", Space: space, Names: []string{"a"}, Seconds: 1000})
	reserved := p.reserve("l", "x")
	jump := func() {
		ahead.pass(time.Hour)
		b.level.Usage()
		ahead.pass(-time.Hour)
	}
	jump()
	require.Equal(t, all(wire.StatusHit, 1), statuses(p.pin("l", "b")))
	require.Equal(t, []wire.Status{wire.StatusEnded, wire.StatusHit}, statuses(p.get("l", "a", "b")))
	require.Equal(t, reserved, p.get("l", "x"))
	require.NoError(t, b.server.registry.Check())
	jump()
	require.Equal(t, all(wire.StatusReserved, 1), statuses(p.reserve("l", "y")))
	require.NoError(t, b.server.registry.Check())
	require.Equal(t, reserved, p.get("l", "x"))
	require.Equal(t, all(wire.StatusOK, 2), statuses(p.commit("l", true, "x", "y")))
	p.release("l")
	b.free()
}

// TestHeld: a process holds so much in all its sessions, counted for each lease, and the rest is full.
func TestHeld(t *testing.T) {
	b := newBed(t, func(b *bed) { b.so.Limits.MaxHeld = 3500 })
	p, q := b.hello(session1), b.hello("session-2")
	other := newPuppet(t).hello(b.socket, "session-3")
	require.Equal(t, int64(3500), p.hello(session1).Limits.Held)
	p.store(b, "a", "b", "c")
	p.store(b, "d", "e")
	require.Equal(t, []wire.Status{wire.StatusHit, wire.StatusHit, wire.StatusHit, wire.StatusFull, wire.StatusFull}, statuses(p.pin("l", "a", "b", "c", "d", "e")))
	require.Equal(t, int64(3000), b.server.Counters().Held)
	require.Equal(t, all(wire.StatusHit, 4), statuses(p.pin("l", "a", "b", "c", "a")), "what it has counts once for a lease")
	require.Equal(t, all(wire.StatusFull, 1), statuses(p.pin("l2", "a")), "and again for another one")
	require.Equal(t, all(wire.StatusFull, 1), statuses(q.pin("l", "a")), "all sessions of the process together")
	require.Equal(t, all(wire.StatusFull, 1), statuses(q.reserve("w", "x")))
	require.Equal(t, all(wire.StatusHit, 3), statuses(other.pin("l", "a", "d", "e")), "another process has its own")
	require.Len(t, b.server.Leases(), 2, "what has nothing is no lease")
	p.unpin("l", "b", "c")
	require.Equal(t, []wire.Status{wire.StatusReserved, wire.StatusReserved, wire.StatusFull}, statuses(q.reserve("w", "x", "y", "z")))
	small := p.ok(wire.Request{Op: wire.Reserve, Lease: "w", Space: space, Objects: []wire.Object{{Name: "big", Size: 3501}, {Name: "s", Size: 400}, {Name: "t", Size: 101}, {Name: "u"}}})
	require.Equal(t, []wire.Status{wire.StatusTooLarge, wire.StatusReserved, wire.StatusFull, wire.StatusReserved}, statuses(small.Items))
	require.NoError(t, b.server.registry.Check())
	require.NoError(t, b.server.SetLimits(Limits{MaxHeld: 10_000}))
	require.Equal(t, all(wire.StatusHit, 2), statuses(p.pin("l", "b", "c")))
	p.release("l", "w")
	q.release("w")
	other.release("l")
	b.free()
}

// TestManySmallObjects: objects without bytes are bounded, too.
func TestManySmallObjects(t *testing.T) {
	b := newBed(t, func(b *bed) { b.mo.MaxObjects, b.mo.MaxPins = 1200, 2400 })
	p := b.hello(session1)
	full := 0
	for i := range 11 {
		var objects []wire.Object
		for j := range 100 {
			objects = append(objects, wire.Object{Name: fmt.Sprintf("%d-%d", i, j)})
		}
		for _, it := range p.ok(wire.Request{Op: wire.Reserve, Lease: "l", Space: space, Objects: objects}).Items {
			if it.Status == wire.StatusFull {
				full++
			}
		}
	}
	require.Equal(t, 1100-1200/4, full)
	p.release("l")
	b.free()
}

// TestPrefixes: a chain ends with its first miss, whatever the reason.
func TestPrefixes(t *testing.T) {
	b := newBed(t, func(b *bed) { b.so.Limits.MaxHeld = 4500 })
	p := b.hello(session1)
	p.store(b, "a", "b")
	p.store(b, "c", "d", "e")
	prefix := func(lease string, names ...string) []wire.Status {
		return statuses(p.ok(wire.Request{Op: wire.Pin, Lease: lease, Space: space, Names: names, Prefix: true}).Items)
	}
	require.Equal(t, []wire.Status{wire.StatusHit, wire.StatusHit, wire.StatusMiss}, prefix("l", "a", "b", "x", "c"))
	require.Equal(t, []wire.Status{wire.StatusHit, wire.StatusInvalid}, prefix("l", "a", strings.Repeat("x", tier.MaxName+1), "c"))
	require.Equal(t, []wire.Status{wire.StatusMiss}, prefix("m", "x", "y"))
	require.Equal(t, []wire.Status{wire.StatusEnded}, statuses(p.get("l", "c")))
	require.Equal(t, []wire.Status{wire.StatusHit, wire.StatusHit, wire.StatusFull}, prefix("m", "c", "d", "e", "a"), "with two in the other lease")
	require.Equal(t, []wire.Status{wire.StatusHit, wire.StatusHit}, statuses(p.get("m", "c", "d")))
	require.Equal(t, int64(4000), b.server.Counters().Held)
	require.NoError(t, b.server.registry.Check())
	require.Equal(t, []wire.Status{wire.StatusFull}, prefix("n", "a", "b"))
	p.release("l")
	require.Equal(t, []wire.Status{wire.StatusHit, wire.StatusHit}, prefix("m", "c", "e"))
	require.Equal(t, []wire.Status{wire.StatusHit, wire.StatusHit, wire.StatusFull}, prefix("m", "c", "b", "a", "e"), "what it had behind the end stays")
	require.Equal(t, []wire.Status{wire.StatusHit}, statuses(p.get("m", "e")))
	require.NoError(t, b.server.registry.Check())
	p.release("m")
	b.free()
}

// TestCounters: identifiers that an engine counted are refused, of clients that store what encoders computed.
func TestIdentifiersThatAreCounters(t *testing.T) {
	b := newBed(t, nil)
	p, q := b.dial(), b.hello("session-2")
	f := encoder.Fingerprint{Model: "m", DType: "bfloat16"}
	r := p.ok(wire.Request{Op: wire.Hello, Version: wire.Version, Session: session1, Client: "test", Fingerprint: &f})
	want, err := f.Space()
	require.NoError(t, err)
	require.Equal(t, want, r.Space)
	const counter = "renderer0-mm-1-image-0"
	require.Equal(t, []wire.Status{wire.StatusReserved, wire.StatusInvalid, wire.StatusReserved}, statuses(p.reserve("w", "a", counter, "b")))
	require.Equal(t, []wire.Status{wire.StatusOK, wire.StatusInvalid, wire.StatusOK}, statuses(p.commit("w", false, "a", counter, "b")))
	require.Equal(t, []wire.Status{wire.StatusHit, wire.StatusInvalid, wire.StatusHit}, statuses(p.pin("l", "a", counter, "b")))
	require.Equal(t, []wire.Status{wire.StatusReserved}, statuses(q.reserve("w", counter)), "others may name things as they like")
	require.Equal(t, []wire.Status{wire.StatusInvalid}, statuses(p.pin("l2", counter)))
	p.release("l")
	q.release("w")
	b.free()
	f.DType = ""
	p.refused(wire.KindInvalid, wire.Request{Op: wire.Hello, Version: wire.Version, Session: session1, Client: "test", Fingerprint: &f})
}

// TestAgain: who had no answer asks again, and is answered as then.
func TestAgain(t *testing.T) {
	b := newBed(t, nil)
	p, q := b.hello(session1), b.hello("session-2")
	first := p.reserve("w", "a", "b")
	require.Equal(t, first, p.reserve("w", "a", "b"))
	require.Equal(t, all(wire.StatusPending, 1), statuses(p.reserve("another", "a")), "by another lease")
	other := p.ok(wire.Request{Op: wire.Reserve, Lease: "w", Space: space, Objects: []wire.Object{{Name: "a", Size: 999, Note: []byte("note of a")}, {Name: "b", Size: 1000}}})
	require.Equal(t, all(wire.StatusInvalid, 2), statuses(other.Items), "as something else")
	require.Equal(t, all(wire.StatusEnded, 1), statuses(q.commit("w", false, "a")))
	require.Equal(t, all(wire.StatusOK, 2), statuses(p.commit("w", false, "a", "a")))
	require.Equal(t, all(wire.StatusOK, 1), statuses(p.commit("w", false, "a")))
	require.Equal(t, all(wire.StatusEnded, 1), statuses(p.get("w", "a")), "without keep nothing is pinned")
	require.Equal(t, all(wire.StatusOK, 1), statuses(p.commit("w", true, "a")))
	require.Equal(t, all(wire.StatusHit, 1), statuses(p.get("w", "a")), "keep pins what is there")
	require.Equal(t, all(wire.StatusOK, 1), statuses(p.commit("w", false, "a")))
	require.Equal(t, all(wire.StatusHit, 1), statuses(p.get("w", "a")), "and what is pinned stays")
	require.Equal(t, []wire.Status{wire.StatusOK, wire.StatusEnded}, statuses(p.abort("w", "b", "b")))
	require.Equal(t, all(wire.StatusEnded, 1), statuses(p.abort("nothing", "b")))
	require.Equal(t, []wire.Status{wire.StatusOK, wire.StatusEnded}, statuses(p.commit("nothing", false, "a", "b")))
	require.Equal(t, all(wire.StatusEnded, 1), statuses(p.commit("nothing", true, "a")), "there is nothing to keep it")
	require.NoError(t, b.server.registry.Check())
	for range 2 {
		p.release("w", "nothing")
		p.unpin("w", "a")
	}
	b.free()
}

// TestGetAll: all that a lease has in a space.
func TestGetAll(t *testing.T) {
	b := newBed(t, nil)
	p := b.hello(session1)
	p.store(b, "a", "b")
	p.pin("l", "b", "a")
	r := p.reserve("l", "r")
	p.ok(wire.Request{Op: wire.Reserve, Lease: "l", Space: "elsewhere", Objects: objects("q")})
	items := p.get("l")
	require.Len(t, items, 3)
	for i, name := range []string{"a", "b", "r"} {
		require.Equal(t, name, items[i].Name)
		require.Equal(t, "note of "+name, string(items[i].Note))
	}
	require.Equal(t, []wire.Status{wire.StatusHit, wire.StatusHit, wire.StatusReserved}, statuses(items))
	require.Equal(t, r[0].Offset, items[2].Offset)
	require.Empty(t, p.get("nothing"))
	p.release("l")
	b.free()
}

// TestPending: what only a disk has is pending, and then it is there.
func TestPending(t *testing.T) {
	b := newBed(t, withDisk)
	p := b.hello(session1)
	p.store(b, "a", "b")
	_, err := b.store.Drain(t.Context())
	require.NoError(t, err)
	for _, err := range b.level.Delete(t.Context(), []tier.Key{{Space: space, Name: "a"}, {Space: space, Name: "b"}}) {
		require.NoError(t, err)
	}
	first := statuses(p.pin("l", "a", "b", "x"))
	require.Contains(t, []wire.Status{wire.StatusPending, wire.StatusHit}, first[0])
	b.eventually("both are there", func() bool {
		items := p.pin("l", "a", "b", "x")
		if items[0].Status != wire.StatusHit || items[1].Status != wire.StatusHit {
			return false
		}
		b.holds(items[0], "a")
		return items[2].Status == wire.StatusMiss
	})
	require.NoError(t, b.server.registry.Check())
	p.release("l")
	b.eventually("nothing is held", func() bool { return b.level.Usage().Held == 0 })
	b.free()
}

// TestStat: the first answer is pending, and the next one says where objects are.
func TestStat(t *testing.T) {
	b := newBed(t, withDisk)
	p := b.hello(session1)
	p.store(b, "a", "b")
	_, err := b.store.Drain(t.Context())
	require.NoError(t, err)
	require.NoError(t, b.level.Delete(t.Context(), []tier.Key{{Space: space, Name: "b"}})[0])
	q := wire.Request{Op: wire.Stat, Space: space, Names: []string{"a", "b", "x"}}
	require.Equal(t, all(wire.StatusPending, 3), statuses(p.ok(q).Items))
	var items []wire.Item
	b.eventually("an answer", func() bool { items = p.ok(q).Items; return items[0].Status != wire.StatusPending })
	require.Equal(t, []wire.Item{
		{Status: wire.StatusHit, Size: 1000, Note: []byte("note of a"), Levels: []string{"memory", "disk"}},
		{Status: wire.StatusHit, Size: 1000, Note: []byte("note of b"), Levels: []string{"disk"}},
		{Status: wire.StatusMiss},
	}, items)
	b.free()
	r := p.ok(wire.Request{Op: wire.Stat})
	require.Empty(t, r.Items)
	require.Equal(t, 1, r.State.Sessions)
	require.Equal(t, "disk", r.State.Levels[1].Name)
	require.Equal(t, int64(2), r.State.Levels[1].Objects)
}

// TestClear: objects go from all levels, but what leases have.
func TestClear(t *testing.T) {
	b := newBed(t, withDisk)
	p := b.hello(session1)
	p.store(b, "a", "b", "c")
	p.ok(wire.Request{Op: wire.Reserve, Lease: "w", Space: "other", Objects: objects("d")})
	p.ok(wire.Request{Op: wire.Commit, Lease: "w", Space: "other", Names: []string{"d"}})
	_, err := b.store.Drain(t.Context())
	require.NoError(t, err)
	p.pin("l", "b")
	done := func() bool { return !p.ok(wire.Request{Op: wire.Stat}).State.Clearing }
	p.ok(wire.Request{Op: wire.Clear, Space: space})
	b.eventually("the end of Clear", done)
	left := func() (names []string) {
		for o, err := range b.store.List(context.Background(), "") {
			require.NoError(t, err)
			names = append(names, o.Name)
		}
		return names
	}
	require.ElementsMatch(t, []string{"b", "d"}, left())
	p.release("l")
	p.ok(wire.Request{Op: wire.Clear})
	b.eventually("the end of Clear", done)
	require.Empty(t, left())
	b.free()
}
