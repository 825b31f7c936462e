package registry

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRecentUse: what is older than five minutes goes, in steps.
func TestRecentUse(t *testing.T) {
	var r recent
	is := func(want Use, of, at time.Duration) {
		t.Helper()
		sum, seconds := r.sum(at)
		require.Equal(t, want, sum)
		require.Equal(t, of, seconds)
	}
	is(Use{}, 0, 0)
	r.add(0, Use{Hits: 1})
	r.add(9*time.Second, Use{Hits: 2, Misses: 1})
	r.add(100*time.Second, Use{Stored: 5})
	is(Use{Hits: 3, Misses: 1, Stored: 5}, 101*time.Second, 101*time.Second)
	is(Use{Hits: 3, Misses: 1, Stored: 5}, 299*time.Second, 299*time.Second)
	is(Use{Stored: 5}, 290*time.Second, 300*time.Second)
	r.add(301*time.Second, Use{Hits: 7})
	is(Use{Hits: 7, Stored: 5}, 295*time.Second, 305*time.Second)
	is(Use{}, 295*time.Second, 2005*time.Second)
}
