package daemon

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFilesAreDivided: whatever the limit, what clients may take is what the other parts leave.
func TestFilesAreDivided(t *testing.T) {
	c := testConfig(t)
	for all := 1; all < 1<<21; all += all/7 + 1 {
		for _, redis := range []string{"", "localhost:1", "localhost:1,localhost:2"} {
			for _, want := range []Limits{{MaxConnections: 1024, MaxSessions: 1024}, {MaxConnections: 10000, MaxSessions: 3}, {MaxConnections: 3, MaxSessions: 10000}} {
				c.Redis = redis
				f := c.divide(all)
				if !f.enough() {
					require.Less(t, all, 400)
					continue
				}
				got, cut := f.fit(want)
				name := fmt.Sprintf("%d files, %q, %+v: %+v of %+v", all, redis, got, want, f)
				require.Equal(t, got != want, cut, name)
				require.LessOrEqual(t, got.need(), f.clients, name)
				require.Positive(t, got.MaxConnections, name)
				require.Positive(t, got.MaxSessions, name)
				if cut {
					require.GreaterOrEqual(t, 3*got.need()+32, f.clients, "%s: most of what is there is used", name)
				}
			}
		}
	}
	c.Redis = ""
	f := c.divide(128)
	require.True(t, f.enough())
	require.Less(t, f.clients+f.base+f.http+3*f.disk, 129)
	got, cut := c.divide(0).fit(Limits{MaxConnections: 1 << 30, MaxSessions: 1 << 30})
	require.False(t, cut, "an unknown limit bounds nothing")
	require.Equal(t, 1<<30, got.MaxConnections)
}
