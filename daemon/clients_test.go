//go:build linux

package daemon

import (
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/internal/registry"
	"github.com/ringcache/ringcache/daemon/wire"
	"github.com/ringcache/ringcache/encoder"
)

// TestStatusClients: what each session and all of them asked for, also of sessions that are idle; the metrics
// have the same sums.
func TestStatusClients(t *testing.T) {
	b := newBed(t, nil)
	stat := func(p *peer) wire.Reply { return p.ok(wire.Request{Op: wire.Stat, List: true}) }
	first := b.hello(session1)
	first.store(b, "a", "b", "c")
	require.Equal(t, all(wire.StatusHit, 3), statuses(first.pin("l", "a", "b", "c")))
	first.pin("l", "none", "a")

	puppet := newPuppet(t)
	second := puppet.dial(b.socket)
	space := second.ok(wire.Request{
		Op: wire.Hello, Version: wire.Version, Session: "session-2", Client: "vllm 0.32.0 worker 7", Fingerprint: &encoder.Fingerprint{Model: "m", DType: "bfloat16"},
	}).Space
	r := stat(first)
	require.Equal(t, []int64{4, 1, 3}, []int64{r.State.Hits, r.State.Misses, r.State.Stored})
	require.NotNil(t, r.State.Recent)
	require.Equal(t, []int64{4, 1, 3}, []int64{r.State.Recent.Hits, r.State.Recent.Misses, r.State.Recent.Stored})
	mine := wire.ClientState{Session: session1, Client: "test", PID: os.Getpid(), Space: "space", Hits: 4, Misses: 1, Stored: 3}
	idle := wire.ClientState{Session: "session-2", Client: "vllm 0.32.0 worker 7", PID: puppet.pid(), Space: space}
	timeless := func(r wire.Reply) map[string]wire.ClientState {
		found := map[string]wire.ClientState{}
		for _, c := range r.Clients {
			require.GreaterOrEqual(t, c.Seconds, c.Idle)
			c.Seconds, c.Idle = 0, 0
			found[c.Session] = c
		}
		return found
	}
	require.Equal(t, map[string]wire.ClientState{session1: mine, "session-2": idle}, timeless(r))
	require.Empty(t, first.ok(wire.Request{Op: wire.Stat}).Clients, "without list there is none")

	// Another connection takes the session over: it goes on.
	again := b.hello(session1)
	again.pin("l", "a")
	mine.Hits++
	require.Equal(t, mine, timeless(stat(again))[session1])
	first.ends()
	b.eventually("the old connection is gone", func() bool { return b.server.Counters().Connections == 2 })
	require.Equal(t, mine, timeless(stat(again))[session1])
	again.hello(session1) // again on the same connection: it comes anew
	mine.Hits, mine.Misses, mine.Stored = 0, 0, 0
	require.Equal(t, mine.Hits, timeless(stat(again))[session1].Hits)

	require.NoError(t, second.conn.(interface{ Close() error }).Close())
	b.eventually("who left is not there", func() bool { return len(b.server.clientList()) == 1 })
	again.release("l")

	s, items := b.server.State(), map[string]uint64{}
	for _, it := range b.server.Counters().Items {
		items[fmt.Sprint(it.Op, " ", it.Status)] = it.Count
	}
	require.Equal(t, []int64{5, 1, 3}, []int64{s.Hits, s.Misses, s.Stored})
	require.Equal(t, []uint64{5, 1, 3}, []uint64{items["pin hit"], items["pin miss"], items["commit ok"]}, "the metrics agree")
}

// TestStoredCountsWhatWasPublished: a commit of what is there already is answered ok, and stores nothing; one
// that is cut off has stored what it published.
func TestStoredCountsWhatWasPublished(t *testing.T) {
	b := newBed(t, nil)
	b.hello(session1).store(b, "a")
	other := newPuppet(t).hello(b.socket, "session-other")
	for range 10 {
		require.Equal(t, all(wire.StatusOK, 1), statuses(other.commit("l", false, "a")))
	}
	r := other.ok(wire.Request{Op: wire.Stat, List: true})
	require.Equal(t, []int64{1, 1}, []int64{r.State.Stored, r.State.Recent.Stored})
	for _, c := range r.Clients {
		require.Equal(t, map[string]int64{session1: 1, "session-other": 0}[c.Session], c.Stored, c.Session)
	}
	other.reserve("w", "b")
	require.Equal(t, []wire.Status{wire.StatusOK, wire.StatusOK}, statuses(other.commit("w", true, "a", "b")))
	require.Equal(t, int64(2), b.server.State().Stored)
	other.release("w")
}

// TestManyClientsAreListed: a reply stays within its limit.
func TestManyClientsAreListed(t *testing.T) {
	b := newBed(t, func(b *bed) { b.so.Limits.MaxSessions = 16 * maxClients })
	p := b.hello(session1)
	client := b.connection().client
	long := strings.Repeat("x", 255)
	var users []*registry.Session
	for i := range 2 * maxClients {
		u, err := b.server.registry.Join(client, protocol, fmt.Sprintf("session-%055d", i), long[:wire.MaxClient], func() {})
		require.NoError(t, err)
		u.Count(long, registry.Use{}, true)
		users = append(users, u)
	}
	r := p.ok(wire.Request{Op: wire.Stat, List: true})
	require.Len(t, r.Clients, maxClients)
	frame, err := wire.AppendReply(nil, &wire.Reply{ID: 1, Clients: r.Clients})
	require.NoError(t, err)
	require.Less(t, len(frame), 600*maxClients)
	for _, u := range users {
		u.Leave()
	}
}

// connection returns the only connection.
func (b *bed) connection() *connection {
	b.Helper()
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	require.Len(b, b.server.conns, 1)
	return slices.Collect(maps.Keys(b.server.conns))[0]
}

// TestTakeoverWhileFull: a connection that has no room for its objects, while another one takes its session
// over under another label.
func TestTakeoverWhileFull(t *testing.T) {
	b := newBed(t, nil)
	b.hello(session1)
	c := b.connection()
	var both sync.WaitGroup
	both.Go(func() {
		for range 1000 {
			c.count(&wire.Request{Op: wire.Reserve}, &wire.Reply{Items: []wire.Item{{Status: wire.StatusFull}}})
		}
	})
	both.Go(func() {
		for i := range 1000 {
			_, err := b.server.registry.Join(c.client, protocol, session1, fmt.Sprint("label ", i), func() {})
			require.NoError(t, err)
		}
	})
	both.Wait()
	list := b.server.clientList()
	require.Len(t, list, 1)
	require.Equal(t, "label 999", list[0].Client)
}

// TestLogsOfClients: a line when a process comes, and one when it goes, however many connections it has; none
// for a probe; and no more than some in a minute.
func TestLogsOfClients(t *testing.T) {
	var log syncBuffer
	b := newBed(t, func(b *bed) { b.so.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	lines := func(text string) (found []string) {
		b.server.records.flush(time.Minute)
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, text) {
				found = append(found, line)
			}
		}
		return found
	}
	puppet := newPuppet(t)
	one, two := puppet.hello(b.socket, session1), puppet.hello(b.socket, "session-2")
	require.Empty(t, lines("a client came"), "it may be a probe")
	one.ok(wire.Request{Op: wire.Stat, List: true})
	require.Empty(t, lines("a client came"))
	one.pin("l", "none")
	two.store(b, "a")
	two.pin("l", "a", "none")
	require.Len(t, lines("a client came"), 1)
	require.Contains(t, log.String(), fmt.Sprintf("pid=%d client=test space=space", puppet.pid()))
	_ = one.conn.Close()
	b.eventually("a connection is closed", func() bool { return len(b.server.clientList()) == 1 })
	require.Empty(t, lines("a client went"), "it has another connection")
	puppet.kill()
	_ = two.conn.Close() // the test has it, too
	b.eventually("it went", func() bool { return len(lines("a client went")) == 1 })
	require.Regexp(t, fmt.Sprintf(`pid=%d client=test after=\S+ hits=1 misses=2 stored=1`, puppet.pid()), lines("a client went")[0])
	b.eventually("its leases ended", func() bool { return len(lines("a process has ended, and so have its leases")) == 1 })

	probe := newPuppet(t).hello(b.socket, "session-3")
	probe.ok(wire.Request{Op: wire.Stat, List: true})
	_ = probe.conn.Close()
	b.eventually("the probe is gone", func() bool { return len(b.server.clientList()) == 0 })

	for i := range 200 { // each is another coming of this process
		p := b.hello(fmt.Sprint("session-x", i))
		p.pin("l", "none")
		p.release("l")
		_ = p.conn.Close()
		b.eventually("it is gone", func() bool { return len(b.server.clientList()) == 0 })
	}
	require.Len(t, lines("a client came"), 30)
	require.Len(t, lines("a client went"), 30)
	fill := b.hello(session1)
	var got []wire.Status
	for i := range 2000 {
		got = statuses(fill.reserve(fmt.Sprint("lease", i%8), fmt.Sprint("object", i)))
		if got[0] == wire.StatusFull {
			break
		}
	}
	require.Equal(t, wire.StatusFull, got[0])
	fill.reserve("lease", "one more", "and another one")
	require.Len(t, lines("there is no room in memory"), 1)
}
