package registry

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/internal/process"
	"github.com/ringcache/ringcache/tier"
)

// TestExpiredLeaseWithInterestEndsWithItsReservations: nothing would end it any more, neither time nor
// its client, who is done.
func TestExpiredLeaseWithInterestEndsWithItsReservations(t *testing.T) {
	b := newBed(t, ordinary)
	u, other := b.user(process.Unknown(), "session-1"), b.user(process.Unknown(), "session-2")
	object := func(name string) []tier.Object { return []tier.Object{{Key: key(name), Size: 10}} }
	_, err := other.Reserve("w", object("r"), time.Hour)
	require.NoError(t, err)
	for name, end := range map[string]func() ([]error, error){
		"commit": func() ([]error, error) { errs, _, err := u.Commit("l", keys("x"), false, 0); return errs, err },
		"abort":  func() ([]error, error) { return u.Abort("l", keys("y")) },
	} {
		reserved := map[string]string{"commit": "x", "abort": "y"}[name]
		_, err := u.Reserve("l", object(reserved), time.Second)
		require.NoError(t, err)
		placed, err := u.Pin("l", keys("r"), time.Second, false)
		require.NoError(t, err)
		require.ErrorIs(t, placed[0].Err, tier.ErrPending)
		b.pass(5 * time.Second) // the lease has expired, and the interest has not
		errs, err := end()
		require.NoError(t, err)
		require.NoError(t, errs[0])
		require.NoError(t, b.registry.Check(), name)
		require.Len(t, b.registry.Leases(10), 1, name)
	}
}
