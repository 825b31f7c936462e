package registry

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/internal/process"
	"github.com/ringcache/ringcache/tier"
)

// TestLargeReleaseKeepsNobodyWaiting: what a large lease had is given back in pieces: others have the
// registry in between. So it is when its time has passed, and when its session ends.
func TestLargeReleaseKeepsNobodyWaiting(t *testing.T) {
	const n = 5000
	b := newBed(t, Limits{Sessions: 40, Leases: 8, Held: 1 << 40, Longest: time.Hour, Ordinary: time.Minute})
	u := b.user(process.Unknown(), "session-1")
	objects := make([]tier.Object, n)
	for i := range objects {
		objects[i] = tier.Object{Key: key(fmt.Sprint(i)), Size: 1}
	}
	between := func(end func()) bool { // whether somebody saw the release half done
		_, err := u.Reserve("l", objects, time.Second)
		require.NoError(t, err)
		done := make(chan struct{})
		go func() {
			defer close(done)
			end()
		}()
		seen := false
		for {
			if held := b.registry.Counts().Held; held > 0 && held < n {
				seen = true
			}
			select {
			case <-done:
				require.Zero(t, b.registry.Counts().Held)
				require.NoError(t, b.registry.Check())
				return seen
			default:
			}
		}
	}
	for name, end := range map[string]func(){
		"release": func() {
			for rest := []string{"l"}; len(rest) > 0; rest, _ = u.Release(rest) {
			}
		},
		"time": func() { b.pass(2 * time.Second); b.pass(2 * tier.WriteTime) },
	} {
		begin := time.Now()
		for !between(end) {
			require.Less(t, time.Since(begin), 2*time.Minute, name)
		}
	}
}

// TestReleaseOfALargeLease: each call gives up 64 objects, pinned or reserved ones, and ends the leases in
// front of it; the last one ends the lease and those behind it.
func TestReleaseOfALargeLease(t *testing.T) {
	b := newBed(t, Limits{Sessions: 40, Leases: 8, Held: 1 << 40, Longest: time.Hour, Ordinary: time.Minute})
	u := b.user(process.Unknown(), "session-1")
	var names []string
	var objects []tier.Object
	for i := range 100 {
		names = append(names, fmt.Sprint("pinned ", i))
		objects = append(objects, tier.Object{Key: key(fmt.Sprint("reserved ", i)), Size: 1})
	}
	b.put(names...)
	_, err := u.Pin("l", keys(names...), 0, false)
	require.NoError(t, err)
	_, err = u.Reserve("l", objects, 0)
	require.NoError(t, err)
	for _, name := range []string{"first", "last"} {
		_, err = u.Pin(name, keys(names[0]), 0, false)
		require.NoError(t, err)
	}
	rest := []string{"first", "none", "l", "none", "last"}
	for _, left := range []int{136, 72, 8} {
		rest, err = u.Release(rest)
		require.NoError(t, err)
		require.Equal(t, []string{"l", "none", "last"}, rest)
		require.Equal(t, left, u.Objects("l"))
		require.Zero(t, u.Objects("first"))
		require.Equal(t, 1, u.Objects("last"))
		require.NoError(t, b.registry.Check())
	}
	rest, err = u.Release(rest)
	require.NoError(t, err)
	require.Empty(t, rest)
	require.Empty(t, b.registry.Leases(10))
}
