package registry

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/internal/process"
	"github.com/ringcache/ringcache/tier"
)

// slow is a memory level that does something before it answers Reserve.
type slow struct {
	tier.MemoryLevel
	before func()
}

type slowLease struct {
	tier.Lease
	m *slow
}

func (m *slow) Lease(ctx context.Context, o tier.LeaseOptions) (tier.Lease, error) {
	l, err := m.MemoryLevel.Lease(ctx, o)
	return slowLease{l, m}, err
}

func (l slowLease) Reserve(o []tier.Object) []tier.Placed {
	if f := l.m.before; f != nil {
		l.m.before = nil
		f()
	}
	return l.Lease.Reserve(o)
}

// TestClaimedSizeIsNobodysSize: what somebody says who wants to reserve an object counts no longer than the
// store takes to answer, and not for others who have the object, whoever of them comes first.
func TestClaimedSizeIsNobodysSize(t *testing.T) {
	b := newBed(t, Limits{Sessions: 40, Leases: 8, Held: 1 << 20, Longest: ordinary.Longest, Ordinary: ordinary.Ordinary, Memory: 2 << 20, Objects: 100})
	require.NoError(t, b.store.Close())
	b.registry.Close()
	m := &slow{MemoryLevel: b.memory}
	var err error
	b.store, err = tier.Open(context.Background(), tier.Options{Memory: m})
	require.NoError(t, err)
	b.open()
	b.put("a")
	liar, honest := b.user(process.Unknown(), "session-liar"), b.user(process.Unknown(), "session-honest")
	counted := b.counted
	claim := func(name string, size int64, during func()) error {
		m.before = during
		placed, err := liar.Reserve("r", []tier.Object{{Key: key(name), Size: size}}, 0)
		require.NoError(t, err)
		return placed[0].Err
	}
	for _, size := range []int64{1 << 19, 1} {
		require.ErrorIs(t, claim("a", size, func() {
			placed, err := honest.Pin("l", keys("a"), 0, false)
			require.NoError(t, err)
			require.NoError(t, placed[0].Err)
			require.Equal(t, int64(1000), counted())
		}), tier.ErrExists)
		require.Equal(t, int64(1000), counted())
		require.NoError(t, b.registry.Check())
		b.release(honest, "l")
		require.Zero(t, counted())
	}
	// The same with somebody who reserves it first.
	require.ErrorIs(t, claim("b", 1<<19, func() {
		placed, err := honest.Reserve("w", []tier.Object{{Key: key("b"), Size: 10}}, 0)
		require.NoError(t, err)
		require.NoError(t, placed[0].Err)
	}), tier.ErrPending)
	require.Equal(t, int64(10), counted())
	require.NoError(t, b.registry.Check())
	b.release(honest, "w")
}

// counting is an account that only looks.
type counting struct{ last tier.Charge }

func (c *counting) Charge(x tier.Charge) error {
	c.last = x
	return tier.ErrFull
}
func (*counting) Credit(int64) {}
func (*counting) Expired()     {}

// counted returns the bytes that leases have, each object once, as the next one is told who wants an object.
func (b *bed) counted() int64 {
	c := &counting{}
	l, err := b.memory.Lease(context.Background(), tier.LeaseOptions{ID: "counting", Account: c})
	require.NoError(b, err)
	require.ErrorIs(b, l.Reserve([]tier.Object{{Key: key("counting")}})[0].Err, tier.ErrFull)
	l.Release()
	return c.last.Bytes
}
