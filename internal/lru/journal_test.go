package lru

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// everything lists a cache, oldest first, ghosts included.
func everything(l *Cache[int]) (out []node[int]) {
	for n := l.order.next; n != &l.order; n = n.next {
		out = append(out, node[int]{key: n.key, value: n.value, size: n.size, pinned: n.pinned, ghost: n.ghost})
	}
	return out
}

// A transaction that is rolled back leaves everything in its place, and one that is
// committed leaves what a cache without a transaction has. Changes lists what came and
// went.
func TestTransactions(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		changes, plainChanges := []Change{}, []Change{}
		l := New(20, Options[int]{OnChange: func(c Change, _ string, _ int64) { changes = append(changes, c) }})
		plain := New(20, Options[int]{OnChange: func(c Change, _ string, _ int64) { plainChanges = append(plainChanges, c) }})
		key := rapid.StringMatching("[A-F]")
		random := func(caches ...*Cache[int]) {
			k, size, value := key.Draw(r, "key"), rapid.Int64Range(0, 9).Draw(r, "size"), rapid.Int().Draw(r, "value")
			what := rapid.IntRange(0, 7).Draw(r, "what")
			for _, c := range caches {
				switch what {
				case 0:
					c.Pop(k)
				case 1:
					c.Pin(k)
				case 2:
					c.Unpin(k)
				case 3:
					c.TouchGhost(k)
				case 4:
					c.Replace(k, value)
				case 5:
					c.Touch(k)
				default:
					_ = c.Put(k, value, size) // refused at a ghost, or when all is pinned
				}
			}
		}
		for range rapid.IntRange(0, 5).Draw(r, "transactions") {
			for range rapid.IntRange(0, 8).Draw(r, "before") {
				random(l, plain)
			}
			before := everything(l)
			here := maps.Clone(l.entries)
			commit := rapid.Bool().Draw(r, "commit")
			l.Begin()
			for range rapid.IntRange(0, 12).Draw(r, "in it") {
				if commit {
					random(l, plain)
				} else {
					random(l)
				}
			}
			added, evicted := l.Changes()
			for _, k := range added {
				require.NotContains(r, here, k)
				require.Contains(r, l.entries, k)
			}
			for _, k := range evicted {
				require.Contains(r, here, k)
				require.NotContains(r, l.entries, k)
			}
			require.Len(r, l.entries, len(here)+len(added)-len(evicted))
			if commit {
				l.Commit()
			} else {
				l.Rollback()
				require.Equal(r, before, everything(l))
				changes = changes[:len(plainChanges)]
			}
			require.NoError(r, l.CheckStructure())
			require.Equal(r, everything(plain), everything(l))
			require.Equal(r, plainChanges, changes)
		}
	})
}
