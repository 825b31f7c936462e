package upstream_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/goldentest"
	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/lrusync/upstream"
)

func TestMain(m *testing.M) { os.Exit(goldentest.ReadOnlyTable(m).Run()) }

// pair is a frontend's cache and its engine's. A value is its own size.
type pair struct {
	*upstream.SenderCache
	engine *upstream.ReceiverCache[int64]
}

func newPair(t *testing.T, o lrusync.Options) pair {
	s, err := upstream.NewSenderCache(o)
	require.NoError(t, err)
	r, err := upstream.NewReceiverCache[int64](o)
	require.NoError(t, err)
	return pair{s, r}
}

func (p pair) requireEqual(t *testing.T) {
	t.Helper()
	here, size := p.Contents()
	there, sizeThere := p.engine.Contents()
	require.Equal(t, there, here)
	require.Equal(t, sizeThere, size)
	require.NoError(t, p.CheckStructure())
	require.NoError(t, p.engine.CheckStructure())
}

// without is a feature that is named only, with one that carries a value which is
// its own size.
func without(key string) lrusync.Feature[int64] { return lrusync.Feature[int64]{Key: key} }

func with(key string, size int64) lrusync.Feature[int64] {
	return lrusync.Feature[int64]{Key: key, HasData: true, Value: size, Size: size}
}

func keysOf(contents []lrusync.KeySize, _ int64) (keys []string) {
	for _, k := range contents {
		keys = append(keys, k.Key)
	}
	return keys
}

func requireMiss(t *testing.T, err error, keys ...string) {
	t.Helper()
	require.ErrorIs(t, err, upstream.ErrMiss)
	var miss *upstream.MissError
	require.ErrorAs(t, err, &miss)
	require.Equal(t, keys, miss.Keys)
}
