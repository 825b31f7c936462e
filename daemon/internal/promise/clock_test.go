package promise

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/internal/process"
	"github.com/ringcache/ringcache/fuzz/tiertest"
	"github.com/ringcache/ringcache/tier"
)

// TestCommitKeepsTheClockThatNobodySets: after a commit with keep, too, the end of reservations is counted by it.
func TestCommitKeepsTheClockThatNobodySets(t *testing.T) {
	memory := tiertest.NewMap(tiertest.MapOptions{Name: "memory"})
	store, err := tier.Open(context.Background(), tier.Options{Memory: memory})
	require.NoError(t, err)
	book, err := Open(Options{Store: store, Memory: memory, Grace: time.Minute, Limits: ordinary}) // with the real clock
	require.NoError(t, err)
	u := (&bed{tester: t, book: book}).user(process.Unknown(), "session-1")
	counted := func() bool {
		u.s.mu.Lock()
		defer u.s.mu.Unlock()
		until := u.s.leases["l"].until
		return until != until.Round(0)
	}
	_, err = u.Reserve("l", []tier.Object{{Key: key("a"), Size: 1}, {Key: key("b"), Size: 1}}, time.Minute)
	require.NoError(t, err)
	require.True(t, counted())
	_, _, err = u.Commit("l", keys("a"), true, time.Hour)
	require.NoError(t, err)
	require.True(t, counted())
	require.NoError(t, book.Check())
	book.Close()
	require.NoError(t, store.Close())
	require.NoError(t, memory.Close())
}
