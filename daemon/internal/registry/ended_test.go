package registry

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/internal/process"
)

// TestEndsThatARequestNoticesCount: a lease whose end a request notices before the keeper of times does
// has ended by time, too.
func TestEndsThatARequestNoticesCount(t *testing.T) {
	b := newBed(t, ordinary)
	b.put("a")
	u := b.user(process.Unknown(), "session-1")
	ends := map[string]func(){
		"get":    func() { _, err := u.Get("l", keys("a")); require.NoError(t, err) },
		"pin":    func() { _, err := u.Pin("l", keys("a"), 0, false); require.NoError(t, err) },
		"commit": func() { _, _, err := u.Commit("l", keys("a"), false, 0); require.NoError(t, err) },
	}
	for name, end := range ends {
		before := b.registry.Counts().EndedByTime
		_, err := u.Pin("l", keys("a"), time.Second, false)
		require.NoError(t, err)
		b.mu.Lock()
		b.now = b.now.Add(time.Hour)
		b.mu.Unlock()
		end()
		require.Equal(t, before+1, b.registry.Counts().EndedByTime, name)
		b.release(u, "l")
		b.pass(0)
		require.Equal(t, before+1, b.registry.Counts().EndedByTime, name)
	}
}
