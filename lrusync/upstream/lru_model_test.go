package upstream_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/internal/lru"
	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/lrusync/upstream"
)

// naive is an LRU as plain as can be: a list that is searched.
type naive struct {
	capacity     float64
	anew         bool
	list         []naiveEntry // oldest first
	hits, total  int64
	hits0, all0  int64 // at the last delta
	removedNames []string
}

type naiveEntry struct {
	key    string
	size   int64
	pinned bool
	ghost  bool
}

func (m *naive) find(key string) int {
	return slices.IndexFunc(m.list, func(e naiveEntry) bool { return e.key == key })
}

func (m *naive) live(key string) int {
	if i := m.find(key); i >= 0 && !m.list[i].ghost {
		return i
	}
	return -1
}

func (m *naive) sum() (n int64) {
	for _, e := range m.list {
		n += e.size
	}
	return n
}

func (m *naive) drop(i int) naiveEntry {
	e := m.list[i]
	m.list = slices.Delete(m.list, i, i+1)
	return e
}

func (m *naive) renew(i int) { m.list = append(m.list, m.drop(i)) }

func (m *naive) removeAt(i int) {
	if e := m.drop(i); !e.ghost {
		m.removedNames = append(m.removedNames, e.key)
	}
}

func (m *naive) evict() error {
	for i, e := range m.list {
		switch {
		case e.ghost:
			return lru.ErrHang
		case !e.pinned:
			m.removeAt(i)
			return nil
		}
	}
	return lru.ErrPinned
}

func (m *naive) popItem(evenPinned bool) (string, error) {
	for i, e := range m.list {
		if !e.ghost && (evenPinned || !e.pinned) {
			m.removeAt(i)
			return e.key, nil
		}
	}
	return "", lru.ErrPinned
}

func (m *naive) put(key string, size int64) error {
	if float64(size) > m.capacity {
		return lru.ErrTooLarge
	}
	fits := func() bool {
		i := m.live(key)
		switch {
		case i < 0:
			return float64(m.sum()+size) <= m.capacity
		case m.anew:
			return m.list[i].size >= size || float64(m.sum()+size) <= m.capacity
		}
		return float64(m.sum()-m.list[i].size+size) <= m.capacity
	}
	for !fits() {
		if err := m.evict(); err != nil {
			return err
		}
	}
	e := naiveEntry{key: key, size: size}
	if i := m.find(key); i >= 0 {
		e.pinned = m.drop(i).pinned
	}
	m.list = append(m.list, e)
	return nil
}

// Random operations, upstream's own among them, give the same answers, contents, pins, statistics and
// removals as the naive cache, by both rules of growing.
func TestLRUAgainstModel(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		anew := rapid.Bool().Draw(r, "anew")
		ghosts := rapid.Bool().Draw(r, "ghosts")
		capacity := float64(rapid.IntRange(0, 60).Draw(r, "capacity")) / 2
		m := &naive{capacity: capacity, anew: anew}
		var removed []string
		l := upstream.NewLRUCache(capacity, upstream.LRUOptions[int64]{GrowAnew: anew, OnRemove: func(k string, _ int64) { removed = append(removed, k) }})
		key := func() string { return rapid.StringMatching("[A-H]").Draw(r, "key") }
		size := func() int64 { return int64(rapid.IntRange(0, int(capacity)+2).Draw(r, "size")) }
		same := func(want, got error) { require.ErrorIs(r, got, want); require.Equal(r, want == nil, got == nil) }
		r.Repeat(map[string]func(*rapid.T){
			"put": func(*rapid.T) { k, n := key(), size(); same(m.put(k, n), l.Put(k, n, n)) },
			"put if it fits": func(*rapid.T) {
				k, n := key(), size()
				stored, err := l.PutIfFits(k, n, n)
				require.Equal(r, float64(n) <= capacity, stored)
				if stored {
					same(m.put(k, n), err)
				}
			},
			"get": func(*rapid.T) {
				k := key()
				v, ok := l.Get(k)
				i := m.live(k)
				require.Equal(r, i >= 0, ok)
				m.total++
				if ok {
					require.Equal(r, m.list[i].size, v)
					m.hits++
					m.renew(i)
				}
			},
			"item": func(*rapid.T) {
				k := key()
				_, ok := l.GetItem(k)
				i := m.live(k)
				require.Equal(r, i >= 0, ok)
				if ok {
					m.hits++
					m.total++
					m.renew(i)
				}
			},
			"touch": func(*rapid.T) {
				k := key()
				l.Touch(k)
				if i := m.live(k); i >= 0 {
					m.renew(i)
				}
			},
			"touch, leaving ghosts": func(*rapid.T) {
				if !ghosts {
					r.Skip()
				}
				k := key()
				l.TouchGhost(k)
				if i := m.find(k); i >= 0 {
					m.renew(i)
				} else {
					m.list = append(m.list, naiveEntry{key: k, ghost: true})
				}
			},
			"pop": func(*rapid.T) {
				k := key()
				_, ok := l.Pop(k)
				i := m.live(k)
				require.Equal(r, i >= 0, ok)
				if ok {
					m.removeAt(i)
				}
			},
			"pop oldest": func(*rapid.T) {
				even := rapid.Bool().Draw(r, "even pinned")
				k, v, err := l.PopItem(even)
				want, wantErr := m.popItem(even)
				same(wantErr, err)
				require.Equal(r, want, k)
				require.True(r, err != nil || v >= 0)
			},
			"pin": func(*rapid.T) {
				k := key()
				i := m.live(k)
				require.Equal(r, i >= 0, l.Pin(k))
				if i >= 0 {
					m.list[i].pinned = true
				}
			},
			"unpin": func(*rapid.T) {
				k := key()
				l.Unpin(k)
				if i := m.live(k); i >= 0 {
					m.list[i].pinned = false
				}
			},
			"clear": func(*rapid.T) {
				if rapid.IntRange(0, 9).Draw(r, "rarely") > 0 {
					r.Skip()
				}
				l.Clear()
				for len(m.list) > 0 {
					m.removeAt(0)
				}
				m.hits, m.total, m.hits0, m.all0 = 0, 0, 0, 0
			},
			"delta": func(*rapid.T) {
				require.Equal(r, lrusync.Stats{Hits: m.hits - m.hits0, Total: m.total - m.all0}, l.Stat(true))
				m.hits0, m.all0 = m.hits, m.total
			},
			"": func(*rapid.T) {
				var want []naiveEntry
				for _, e := range m.list {
					if !e.ghost {
						want = append(want, e)
					}
				}
				var got []naiveEntry
				for k, e := range l.All() {
					require.Equal(r, e.Size, e.Value)
					got = append(got, naiveEntry{key: k, size: e.Size, pinned: e.Pinned})
				}
				require.Equal(r, want, got)
				require.Equal(r, len(want), l.Len())
				require.Equal(r, m.sum(), l.Size())
				require.Equal(r, lrusync.Stats{Hits: m.hits, Total: m.total}, l.Stat(false))
				require.Equal(r, m.removedNames, removed)
				require.NoError(r, l.CheckStructure())
			},
		})
	})
}
