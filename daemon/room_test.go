//go:build linux

package daemon

import (
	"bytes"
	"fmt"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/internal/fair"
	"github.com/ringcache/ringcache/daemon/wire"
	"github.com/ringcache/ringcache/tier"
)

// largeBed has objects n0, n1, ... whose notes are as large as they may be, and clients that the server waits
// for as long as it takes.
func largeBed(t *testing.T, n int) (*bed, []string) {
	b := newBed(t, func(b *bed) {
		b.mo.Size, b.mo.MaxObjects, b.mo.MaxPins = 4<<20, 2048, 1<<16
		b.so.patience = patience{hello: time.Hour, frame: time.Hour, reply: time.Hour}
	})
	p := b.hello("session-writer")
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint("n", i)
		q := wire.Request{Op: wire.Reserve, Lease: "w", Space: space, Objects: []wire.Object{{Name: names[i], Size: 1, Note: bytes.Repeat([]byte("n"), tier.MaxNote)}}}
		require.Equal(t, all(wire.StatusReserved, 1), statuses(p.ok(q).Items))
	}
	p.commit("w", false, names...)
	return b, names
}

// times returns names often enough for n.
func times(names []string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = names[i%len(names)]
	}
	return out
}

// heap returns the bytes of the heap that are in use.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestMemorySlowReaders: clients that ask for much and do not read it hold their share of the memory for
// replies, and not more; others are answered.
func TestMemorySlowReaders(t *testing.T) {
	b, names := largeBed(t, 100)
	before := heap()
	q := wire.Request{Op: wire.Pin, Lease: "l", Space: space, Names: times(names, wire.MaxNames)} // the reply has 4 MiB
	var greedy []*puppet
	for i := range 3 {
		p := newPuppet(t)
		greedy = append(greedy, p)
		for j := range 12 {
			p.hello(b.socket, fmt.Sprintf("session-greedy-%d-%d", i, j)).send(q)
		}
	}
	replies := b.server.rooms.Replies
	b.eventually("replies that nobody takes", func() bool { now, _ := replies.Used(); return now > replies.Size()/2 })
	small := b.hello(session1)
	for range 100 {
		require.Equal(t, all(wire.StatusHit, 2), statuses(small.pin("l", names[:2]...)))
	}
	_, peak := replies.Used()
	require.LessOrEqual(t, peak, replies.Size())
	require.Less(t, heap()-before, int64(64<<20), "36 replies of 4 MiB")

	greedy[0].kill() // who takes its place?
	large := b.hello("session-2")
	require.Equal(t, all(wire.StatusHit, wire.MaxNames), statuses(large.ok(q).Items), "whoever has nothing yet has a turn")
	for _, p := range greedy {
		p.kill()
	}
	b.eventually("it is given back", func() bool { return b.server.rooms.Used() == 0 })
	small.release("l")
	large.release("l")
	require.True(t, b.server.rooms.BurstEnded(), "memory is given back")
	require.False(t, b.server.rooms.BurstEnded(), "once")
	b.eventually("all leases end", func() bool { return b.server.Counters().Leases == 0 })
	b.free()
}

// TestSlowReadersLeaveRoomForLittle: as many processes as it takes to have all room for large replies do not
// read theirs, and others wait with more; a reply that is not small, to one that has nothing, comes all the
// same.
func TestSlowReadersLeaveRoomForLittle(t *testing.T) {
	b, names := largeBed(t, 100)
	q := wire.Request{Op: wire.Pin, Lease: "l", Space: space, Names: times(names, 1000)} // the reply has 4 MiB
	honest := b.hello(session1)
	hits := uint64(0)
	for i := range 7 {
		p := newPuppet(t)
		for j := range 4 {
			p.hello(b.socket, fmt.Sprintf("session-greedy-%d-%d", i, j)).send(q)
			hits += 1000
		}
	}
	b.eventually("all wait for their replies, or to be read", func() bool {
		var n uint64
		for _, x := range b.server.Counters().Items {
			if x.Op == wire.Pin && x.Status == wire.StatusHit {
				n += x.Count
			}
		}
		return n == hits
	})
	for range 20 {
		inTime(t, "a reply of 200 KiB waits for those of 4 MiB", func() {
			require.Equal(t, all(wire.StatusHit, 50), statuses(honest.pin("l", names[:50]...)))
		})
	}
}

// TestMemorySlowWriters: the same for requests that do not come to an end.
func TestMemorySlowWriters(t *testing.T) {
	b, names := largeBed(t, 1)
	before := heap()
	out, err := wire.AppendRequest(nil, &wire.Request{ID: 1, Op: wire.Stat, Space: space, Names: times([]string{string(bytes.Repeat([]byte("x"), 1000))}, wire.MaxNames)})
	require.NoError(t, err)
	var greedy []*puppet
	for i := range 3 {
		p := newPuppet(t)
		greedy = append(greedy, p)
		for j := range 20 {
			c := p.hello(b.socket, fmt.Sprintf("session-greedy-%d-%d", i, j)).conn.(net.Conn)
			go func() { _, _ = c.Write(out[:len(out)-1]) }() // until the server ends
			b.Cleanup(func() { _ = c.Close() })
		}
	}
	requests := b.server.rooms.Requests
	b.eventually("requests that do not come to an end", func() bool { now, _ := requests.Used(); return now > requests.Size()/2 })
	small := b.hello(session1)
	for range 100 {
		require.Equal(t, all(wire.StatusHit, 1), statuses(small.pin("l", names...)))
	}
	_, peak := requests.Used()
	require.LessOrEqual(t, peak, requests.Size())
	require.Less(t, heap()-before, int64(64<<20))
	for _, p := range greedy {
		p.kill()
	}
	b.eventually("it is given back", func() bool { return b.server.rooms.Used() == 0 })
	small.release("l")
	b.free()
}

// TestMemoryIdleStat: what stat has found is bounded, goes after some seconds though nobody asks again, and
// at once with the connection.
func TestMemoryIdleStat(t *testing.T) {
	b, _ := largeBed(t, 1)
	long := make([]string, 500)
	for i := range long {
		long[i] = fmt.Sprintf("%0900d", i)
	}
	q := wire.Request{Op: wire.Stat, Space: space, Names: long}
	before := heap()
	looks := b.server.rooms.Looks
	var peers []*peer
	for i := range 40 {
		peers = append(peers, b.hello(fmt.Sprint("session-idle-", i)))
	}
	answered := map[*peer]bool{}
	b.eventually("some have their answers", func() bool {
		for _, p := range peers {
			answered[p] = answered[p] || p.ok(q).Items[0].Status == wire.StatusMiss
		}
		return len(answered) > 0 && answered[peers[0]]
	})
	_, peak := looks.Used()
	require.LessOrEqual(t, peak, looks.Size())
	require.NotZero(t, peak)
	b.eventually("what was found is too old", func() bool { return b.server.rooms.Used() == 0 })
	require.Less(t, heap()-before, int64(8<<20), "connections that are idle")
	b.eventually("the last has its answer, too", func() bool { return peers[39].ok(q).Items[0].Status == wire.StatusMiss })
	require.NoError(t, peers[39].conn.Close())
	b.eventually("the connection is gone", func() bool { return b.server.Counters().Connections == 40 })
	now, _ := looks.Used()
	require.Zero(t, now)
}

// TestRequestFlood: one process has many large requests under way; the small one of another is handled after
// a few pieces of them.
func TestRequestFlood(t *testing.T) {
	b, names := largeBed(t, 1)
	honest := b.hello(session1)
	leases := []string{"pins", "chain", "more pins"}
	var flood []*peer
	for i := range leases {
		p := newPuppet(t)
		for j := range 20 {
			flood = append(flood, p.hello(b.socket, fmt.Sprintf("session-flood-%d-%d", i, j)))
		}
	}
	turns := b.server.rooms.Turns
	var mine fair.Queue // a process that takes part, so that the test sees each turn
	wake := make(chan struct{}, 1)
	n := turnsAtOnce()
	for range n { // with one turn for all, the order is the same each time
		turns.Acquire(&mine, wake)
	}
	missing := make([]string, wire.MaxNames)
	for i := range missing {
		missing[i] = fmt.Sprint("missing ", i)
	}
	for i, c := range flood {
		lease := leases[i/20]
		for range 5 {
			c.send(wire.Request{Op: wire.Pin, Lease: lease, Space: space, Names: missing, Prefix: lease == "chain"})
		}
	}
	b.eventually("they wait", func() bool { return turns.Waiting() == len(flood) })
	hits := func() (n uint64) {
		for _, x := range b.server.Counters().Items {
			if x.Op == wire.Pin && x.Status == wire.StatusHit {
				n += x.Count
			}
		}
		return n
	}
	for range 3 {
		waiting, before := turns.Waiting(), hits()
		honest.send(wire.Request{Op: wire.Pin, Lease: "l", Space: space, Names: names})
		b.eventually("the honest one waits", func() bool { return turns.Waiting() > waiting })
		for pieces := 0; hits() == before; pieces++ {
			require.Less(t, pieces, 10, "pieces of a flood of 300 requests with 16 pieces each")
			turns.Yield(&mine, wake, 1)
		}
		r, err := honest.receive()
		require.NoError(t, err)
		require.Equal(t, all(wire.StatusHit, 1), statuses(r.Items))
	}
	b.eventually("the flood is still there", func() bool { return turns.Waiting() == len(flood) })
	for range n {
		turns.Release(&mine, 1)
	}
}
