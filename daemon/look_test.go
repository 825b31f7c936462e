//go:build linux

package daemon

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/internal/fair"
	"github.com/ringcache/ringcache/daemon/wire"
)

func statOf(n int) wire.Request {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint("missing ", i)
	}
	return wire.Request{Op: wire.Stat, Space: space, Names: names}
}

// TestLargeLookupsTakeTheRoomThatThereIs: others have most of the room for lookups, and keep it. A large one
// is made in parts.
func TestLargeLookupsTakeTheRoomThatThereIs(t *testing.T) {
	b := newBed(t, nil)
	looks := b.server.rooms.Looks
	var others fair.Share
	most := looks.Size() - 1<<20
	require.True(t, looks.TryAcquire(&others, most))
	p := b.hello(session1)
	b.eventually("all is looked up", func() bool {
		for _, it := range p.ok(statOf(wire.MaxNames)).Items {
			if it.Status != wire.StatusMiss {
				return false
			}
		}
		return true
	})
	_, peak := looks.Used()
	require.LessOrEqual(t, peak, looks.Size())
	looks.Release(&others, most)
}

// TestLookupsGoByProcess: a process with many sessions that look something up does not keep the one of another waiting.
func TestLookupsGoByProcess(t *testing.T) {
	b := newBed(t, nil)
	turns := b.server.rooms.Lookers
	var mine fair.Queue // so that the test sees each turn
	wake := make(chan struct{}, 1)
	for range lookers {
		turns.Acquire(&mine, wake)
		defer turns.Release(&mine, 1)
	}
	greedy := newPuppet(t)
	for i := range 60 {
		greedy.hello(b.socket, fmt.Sprint("session-greedy-", i)).ok(statOf(1))
	}
	b.eventually("they wait", func() bool { return turns.Waiting() == 60 })
	honest := b.hello(session1)
	require.Equal(t, all(wire.StatusPending, 1), statuses(honest.ok(statOf(1)).Items))
	b.eventually("so does the honest one", func() bool { return turns.Waiting() == 61 })
	answered := func() bool { return honest.ok(statOf(1)).Items[0].Status == wire.StatusMiss }
	for range 3 {
		turns.Yield(&mine, wake, 1)
	}
	require.GreaterOrEqual(t, turns.Waiting(), 55, "few of the others have had their turn")
	b.eventually("the honest one is answered", answered)
}
