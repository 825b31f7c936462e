package lrusync_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/lrusync"
)

var ctx = context.Background()

// pair is a sender and a receiver with nothing lost in between. A value is its
// own size.
type pair struct {
	*lrusync.Sender
	r *lrusync.Receiver[int64]
}

func newPair(t require.TestingT, o lrusync.Options) pair {
	s, err := lrusync.NewSender(o)
	require.NoError(t, err)
	r, err := lrusync.NewReceiver[int64](o)
	require.NoError(t, err)
	return pair{s, r}
}

func (p pair) requireEqual(t require.TestingT, at ...any) {
	a, n := p.Contents()
	b, m := p.r.Contents()
	require.Equal(t, b, a, at...)
	require.Equal(t, m, n, at...)
	require.NoError(t, p.CheckStructure(), at...)
	require.NoError(t, p.r.CheckStructure(), at...)
}

func features(items []lrusync.Item, t lrusync.Ticket) []lrusync.Feature[int64] {
	fs := make([]lrusync.Feature[int64], len(items))
	for i, it := range items {
		fs[i] = lrusync.Feature[int64]{Key: it.Key, Identifier: it.Key, HasData: !t.Omit[i], Value: it.Size, Size: it.Size}
		if t.Omit[i] {
			fs[i].Value, fs[i].Size = 0, 0
		}
	}
	return fs
}

func randomItems(r *rapid.T, keys int, largest int64, have bool) []lrusync.Item {
	n := rapid.IntRange(1, 5).Draw(r, "items")
	items := make([]lrusync.Item, n)
	for i := range items {
		k := rapid.IntRange(0, keys-1).Draw(r, "key")
		items[i] = lrusync.Item{
			Key: fmt.Sprint("k", k), Size: 1 + int64(k*7)%largest,
			HasData: have || rapid.Bool().Draw(r, "have"), Fresh: rapid.IntRange(0, 9).Draw(r, "fresh") == 0,
		}
	}
	return items
}

func newSender(t *testing.T, capacity float64) *lrusync.Sender {
	s, err := lrusync.NewSender(lrusync.Options{Capacity: capacity})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.CheckStructure()) })
	return s
}

func carried(key string) []lrusync.Item {
	return []lrusync.Item{{Key: key, HasData: true, Size: 10}}
}

func queue(lrusync.Ticket) error { return nil }

// cached reports for each key whether the sender would omit its data.
func cached(s *lrusync.Sender, keys ...string) []bool {
	out := make([]bool, len(keys))
	for i, k := range keys {
		_, _, out[i] = s.Lookup(k)
	}
	return out
}

func keysOf(contents []lrusync.KeySize, _ int64) (keys []string) {
	for _, k := range contents {
		keys = append(keys, k.Key)
	}
	return keys
}
