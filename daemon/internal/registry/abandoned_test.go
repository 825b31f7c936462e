package registry

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/internal/process"
)

// TestComingBackInTheLastMoment: a client that comes back, and leaves again, just when its grace time is
// noticed to be over keeps what it has, for another grace time.
func TestComingBackInTheLastMoment(t *testing.T) { synctest.Test(t, comingBackInTheLastMoment) }

func comingBackInTheLastMoment(t *testing.T) {
	b := newBed(t, ordinary)
	b.put("a")
	u := b.user(process.Unknown(), "session-1")
	_, err := u.Pin("l", keys("a"), time.Hour, false)
	require.NoError(t, err)
	u.Leave()
	synctest.Wait() // the registry's own keeper of times, which the end of the connection wakes, has looked
	b.mu.Lock()
	b.now = b.now.Add(31 * time.Second)
	b.mu.Unlock()
	late := b.registry.overdue() // as the keeper of times sees it, which then waits for the session
	require.Len(t, late, 1)
	b.user(process.Unknown(), "session-1").Leave()
	for _, s := range late {
		s.abandon()
	}
	require.Len(t, b.registry.Leases(10), 1)
	b.pass(29 * time.Second)
	require.Len(t, b.registry.Leases(10), 1)
	b.pass(2 * time.Second)
	require.Empty(t, b.registry.Leases(10))
}
