package tiertest_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/tiertest"
	"github.com/ringcache/ringcache/tier"
)

func key(name string) tier.Key { return tier.Key{Space: "s", Name: name} }

func put(l tier.Level, name, parent string, size int) error {
	o := tier.Object{Key: key(name), Size: int64(size), Parent: parent}
	puts := []tier.Put{{Object: o, Bytes: []byte(strings.Repeat(name[:1], size))}}
	l.Put(context.Background(), puts)
	return puts[0].Err
}

func TestMapEvictsLeavesFirst(t *testing.T) {
	m := tiertest.NewMap(tiertest.MapOptions{Capacity: 30})
	require.NoError(t, put(m, "a", "", 10))
	require.NoError(t, put(m, "b", "a", 10))
	require.NoError(t, put(m, "c", "b", 10))
	require.ErrorIs(t, put(m, "d", "c", 10), tier.ErrFull, "only ancestors could go")
	require.NoError(t, put(m, "e", "", 10))
	require.ErrorIs(t, m.Stat(context.Background(), []tier.Key{key("c")})[0].Err, tier.ErrNotFound)
	require.Equal(t, int64(1), m.Usage().Evicted)
	require.ErrorIs(t, put(m, "f", "", 31), tier.ErrTooLarge)
	require.NoError(t, m.Close())
}

func TestMapReopens(t *testing.T) {
	m := tiertest.NewMap(tiertest.MapOptions{})
	l, err := m.Lease(context.Background(), tier.LeaseOptions{ID: "l"})
	require.NoError(t, err)
	placed := l.Reserve([]tier.Object{{Key: key("a"), Size: 3}})
	require.NoError(t, placed[0].Err)
	n := m.Reopen()
	copy(placed[0].Bytes, "abc")
	require.Len(t, n.Leases(), 1)
	require.True(t, n.Leases()[0].FromRestart)
	l, err = n.Lease(context.Background(), tier.LeaseOptions{ID: "l"})
	require.NoError(t, err)
	require.NoError(t, l.Commit([]tier.Key{key("a")})[0])
	gets := []tier.Get{{Key: key("a")}}
	n.Get(context.Background(), gets)
	require.NoError(t, gets[0].Err)
	require.Equal(t, "abc", string(gets[0].Bytes))
	require.Equal(t, "abc", string(n.At(placed[0].Offset, 3)))
	require.ErrorIs(t, n.Delete(context.Background(), []tier.Key{key("a")})[0], tier.ErrInUse)
	l.Release()
	require.NoError(t, n.Delete(context.Background(), []tier.Key{key("a")})[0])
	require.Zero(t, n.Usage().Bytes)
}
