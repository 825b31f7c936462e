package registry

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/internal/process"
	"github.com/ringcache/ringcache/tier"
)

// TestProtocolsShareTheRegistry: sessions of two protocols are told apart, share what a process may
// have, and after a restart each protocol finds its own, or nobody does, and they end.
func TestProtocolsShareTheRegistry(t *testing.T) {
	b := newBed(t, ordinary)
	b.put("a", "b")
	c, err := b.registry.Enter(process.Unknown())
	require.NoError(t, err)
	join := func(protocol string) *Session {
		u, err := b.registry.Join(c, protocol, "session-1", "test", func() { t.Fatal("taken over by another protocol") })
		require.NoError(t, err)
		return u
	}
	one, kv := join("one"), join("kv")
	for name, u := range map[string]*Session{"a": one, "b": kv} {
		placed, err := u.Pin("l", keys(name), time.Hour, false)
		require.NoError(t, err)
		require.NoError(t, placed[0].Err)
	}
	_, err = kv.Reserve("w", []tier.Object{{Key: key("r"), Size: 8000}}, time.Hour)
	require.NoError(t, err)
	placed, err := one.Reserve("l", []tier.Object{{Key: key("x"), Size: 1}}, time.Hour)
	require.NoError(t, err)
	require.ErrorIs(t, placed[0].Err, tier.ErrFull, "it is one process")
	list := b.registry.Leases(10)
	require.Len(t, list, 3)
	for i, want := range []Lease{{Protocol: "kv", ID: "session-1/l"}, {Protocol: "kv", ID: "session-1/w"}, {Protocol: "one", ID: "session-1/l"}} {
		require.Equal(t, want, Lease{Protocol: list[i].Protocol, ID: list[i].ID})
	}
	found, err := one.Keys("l", "space")
	require.NoError(t, err)
	require.Equal(t, keys("a"), found)
	c.Leave()

	b.reopen() // with a daemon that does not speak one of them
	require.Equal(t, 3, b.registry.Counts().Waiting)
	c, err = b.registry.Enter(process.Unknown())
	require.NoError(t, err)
	kv = join("kv")
	require.Equal(t, 1, b.registry.Counts().Waiting)
	b.pass(31 * time.Second)
	found, err = kv.Keys("l", "space")
	require.NoError(t, err)
	require.Equal(t, keys("b"), found)
	require.Len(t, b.registry.Leases(10), 2)
	c.Leave()
}

// TestFailedOpeningLeavesNoName: if the level can't open a lease, its name is not counted.
func TestFailedOpeningLeavesNoName(t *testing.T) {
	b := newBed(t, ordinary)
	b.put("a")
	u := b.user(process.Unknown(), "session-1")
	l, err := b.store.Lease(t.Context(), tier.LeaseOptions{ID: "test/session-1/l", Owner: "a stranger"})
	require.NoError(t, err)
	for range ordinary.Leases + 1 {
		_, err = u.Pin("l", keys("a"), 0, false)
		require.ErrorIs(t, err, ErrOwner)
	}
	require.Zero(t, b.registry.Counts().Leases)
	l.Release()
	placed, err := u.Pin("l", keys("a"), 0, false)
	require.NoError(t, err)
	require.NoError(t, placed[0].Err)
}
