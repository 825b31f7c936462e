//go:build linux

package daemon

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/wire"
)

// greedy starts processes, one after the other, each of which takes all that it gets.
func (b *bed) greedy(n int, take func(i int, p *peer)) (all []*puppet) {
	b.Helper()
	for i := range n {
		all = append(all, newPuppet(b))
		take(i, all[i].hello(b.socket, fmt.Sprint("session-of-greedy-", i)))
	}
	require.NoError(b, b.server.registry.Check())
	return all
}

// servesOthers expects that a process that comes last can store, pin and open leases; and that everything is
// free when the greedy ones are gone.
func (b *bed) servesOthers(greedy []*puppet) {
	b.Helper()
	honest := newPuppet(b).hello(b.socket, "session-of-honest")
	for i := range 20 { // one after the other, as a cache does
		honest.store(b, fmt.Sprint("mine ", i))
	}
	hits := honest.pin("l", "mine 18", "mine 19")
	require.Equal(b, all(wire.StatusHit, 2), statuses(hits))
	b.holds(hits[1], "mine 19")
	require.Equal(b, all(wire.StatusHit, 1), statuses(honest.pin("another", "mine 19")))
	require.Equal(b, all(wire.StatusReserved, 2), statuses(honest.reserve("another", "x", "y")))
	for _, p := range greedy {
		p.kill()
	}
	gone := map[int]bool{}
	for _, p := range greedy {
		gone[p.pid()] = true
	}
	b.eventually("the greedy ones are gone with all they had", func() bool {
		clients := b.server.clientList()
		isGone := func(c wire.ClientState) bool { return gone[c.PID] }
		return !slices.ContainsFunc(clients, isGone) && b.server.State().Sessions == len(clients) && len(b.server.Leases()) == 2
	})
	honest.release("l", "another")
	b.free()
}

// TestObjectSlots: a process that reserved objects of one byte had all records of objects, within its limits.
func TestObjectSlots(t *testing.T) {
	for _, how := range []string{"reserved", "pinned"} {
		t.Run(how, func(t *testing.T) {
			b := newBed(t, nil)
			b.servesOthers(b.greedy(6, func(i int, p *peer) {
				had := 0
				for full := false; !full; {
					name := fmt.Sprint(i, " ", had)
					r := p.ok(wire.Request{Op: wire.Reserve, Lease: "l", Space: space, Objects: []wire.Object{{Name: name, Size: 1}}})
					if full = r.Items[0].Status == wire.StatusFull; full {
						break
					}
					require.Equal(t, wire.StatusReserved, r.Items[0].Status)
					if how == "pinned" {
						p.commit("l", true, name)
					}
					had++
				}
				require.Positive(t, had)
				require.LessOrEqual(t, had, b.mo.MaxObjects/4)
			}))
		})
	}
}

// TestBytesHeld: two processes that pinned all that they may had all bytes.
func TestBytesHeld(t *testing.T) {
	b := newBed(t, nil)
	b.servesOthers(b.greedy(4, func(i int, p *peer) {
		for n := 0; ; n++ {
			r := p.ok(wire.Request{Op: wire.Reserve, Lease: "l", Space: space, Objects: []wire.Object{{Name: fmt.Sprint(i, " ", n), Size: 8 << 10}}})
			if r.Items[0].Status == wire.StatusFull {
				require.Positive(t, n)
				return
			}
		}
	}))
}

// TestLeaseTable: two processes had all leases of the daemon, within their limits.
func TestLeaseTable(t *testing.T) {
	b := newBed(t, nil)
	b.hello(session1).store(b, "a")
	b.servesOthers(b.greedy(6, func(_ int, p *peer) {
		for n := 0; ; n++ {
			r := p.do(wire.Request{Op: wire.Pin, Lease: fmt.Sprint("l", n), Space: space, Names: []string{"a"}, Seconds: 3600})
			if r.Error == nil {
				continue
			}
			require.Equal(t, wire.KindBusy, r.Error.Kind)
			require.Positive(t, n)
			require.LessOrEqual(t, n, b.mo.MaxLeases/4)
			return
		}
	}))
}

// TestSessionsOfAll: four processes had all sessions of the daemon.
func TestSessionsOfAll(t *testing.T) {
	b := newBed(t, func(b *bed) { b.so.Limits = Limits{MaxSessions: 40} })
	var greedy []*puppet
	for i := range 6 {
		p := newPuppet(t)
		greedy = append(greedy, p)
		for n := 0; ; n++ {
			if r := p.dial(b.socket).do(helloOf(fmt.Sprintf("session-%d-%d", i, n))); r.Error != nil {
				require.Equal(t, wire.KindBusy, r.Error.Kind)
				require.Positive(t, n)
				break
			}
		}
	}
	b.servesOthers(greedy)
}

// TestPinsThatAreShared: what many processes pin is there once, so it costs none of them its share of the rest.
func TestPinsThatAreShared(t *testing.T) {
	b := newBed(t, nil)
	p := b.hello(session1)
	var names []string
	for i := range 30 {
		names = append(names, fmt.Sprint("n", i))
	}
	p.store(b, names...)
	for i := range 12 {
		q := newPuppet(t).hello(b.socket, fmt.Sprint("session-", i, "-of-many"))
		require.Equal(t, all(wire.StatusHit, len(names)), statuses(q.pin("l", names...)), "process %d", i)
	}
	require.NoError(t, b.server.registry.Check())
}
