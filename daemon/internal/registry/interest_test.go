package registry

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/internal/process"
	"github.com/ringcache/ringcache/tier"
)

// TestOneProcessWantsEverything: a process that asks for more objects than it may have on their way gets
// no more, and another process is served as before.
func TestOneProcessWantsEverything(t *testing.T) {
	b := newBed(t, ordinary)
	b.registry.maxInterest = 2
	writer := b.user(process.Unknown(), "session-w")
	for _, name := range []string{"a", "b", "c", "d"} {
		_, err := writer.Reserve("w", []tier.Object{{Key: key(name), Size: 10}}, time.Hour)
		require.NoError(t, err)
	}
	greedy, other := b.user(process.Unknown(), "session-1"), b.user(process.Unknown(), "session-2")
	pin := func(u *Session, prefix bool, names ...string) (out []error) {
		placed, err := u.Pin("l", keys(names...), time.Hour, prefix)
		require.NoError(t, err)
		require.NoError(t, b.registry.Check())
		for _, p := range placed {
			switch {
			case errors.Is(p.Err, tier.ErrPending):
				out = append(out, tier.ErrPending)
			case errors.Is(p.Err, tier.ErrFull):
				out = append(out, tier.ErrFull)
			default:
				out = append(out, p.Err)
			}
		}
		return out
	}
	pending, full := tier.ErrPending, tier.ErrFull
	require.Equal(t, []error{pending, pending, full}, pin(greedy, false, "a", "b", "c"))
	require.Equal(t, []error{pending, pending, full}, pin(greedy, true, "a", "b", "c", "d"), "a prefix ends there")
	require.Equal(t, []error{pending}, pin(other, false, "c"))
	require.NoError(t, greedy.Unpin("l", keys("a")))
	require.Equal(t, []error{pending, full}, pin(greedy, false, "d", "a"), "what is not wanted any more makes room")
	b.pass(b.store.InterestTime() + time.Second)
	require.Equal(t, []error{pending, pending}, pin(greedy, false, "a", "c"), "so does what nobody has asked for again")
	errs, _, err := writer.Commit("w", keys("a"), false, 0)
	require.NoError(t, err)
	require.NoError(t, errs[0])
	require.Equal(t, []error{nil, pending}, pin(greedy, false, "a", "b"), "and what is there")
}
