package sizing

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// check is the validator of a level.
func (l *Level) check(t require.TestingT) {
	var used int64
	children := map[int32]int32{}
	for id, o := range l.objects {
		require.Equal(t, id, o.id)
		require.True(t, o.value.Live())
		used += o.bytes
		if o.parent != none {
			children[o.parent]++
		}
	}
	require.Equal(t, used, l.used)
	require.LessOrEqual(t, l.used, l.capacity)
	require.Equal(t, children, l.children)
	leaves := 0
	for id, o := range l.objects {
		require.Equal(t, children[id] == 0, l.leaves.Has(o), "a leaf is what has no children")
		if children[id] == 0 {
			leaves++
		}
	}
	require.Equal(t, leaves, l.leaves.Len())
}

func TestLevel(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		l := NewLevel(rapid.Int64Range(1, 200).Draw(r, "capacity"))
		parents, bytes := []int32{}, []int64{}
		for i := range int32(rapid.IntRange(1, 60).Draw(r, "objects")) {
			parent := int32(none)
			if i > 0 && rapid.Bool().Draw(r, "child") {
				parent = rapid.Int32Range(0, i-1).Draw(r, "parent")
			}
			parents, bytes = append(parents, parent), append(bytes, rapid.Int64Range(1, 50).Draw(r, "bytes"))
		}
		for range rapid.IntRange(1, 200).Draw(r, "calls") {
			id := rapid.Int32Range(0, int32(len(parents)-1)).Draw(r, "id")
			_, there := l.objects[id]
			_, hadParent := l.objects[parents[id]]
			require.Equal(r, there, l.Use(id))
			if !there {
				l.Put(id, parents[id], bytes[id])
				if _, stored := l.objects[id]; stored {
					_, has := l.objects[parents[id]]
					require.Equal(r, hadParent, has, "the parent stays")
				}
			}
			l.check(r)
		}
	})
}

// TestLevelsOfAHost: what is found nowhere is in both levels afterwards, and what memory gave up is on the disk.
func TestLevelsOfAHost(t *testing.T) {
	h := NewHost(2, 10)
	for id := range int32(5) {
		require.Equal(t, Nowhere, h.Use(id, none, 1))
		require.Equal(t, InMemory, h.Use(id, none, 1))
	}
	onDisk := 0
	for id := range int32(5) {
		at := h.Use(id, none, 1)
		require.NotEqual(t, Nowhere, at)
		if at == OnDisk {
			onDisk++
		}
	}
	require.GreaterOrEqual(t, onDisk, 3)
	h.memory.check(t)
	h.disk.check(t)
	require.Equal(t, Nowhere, NewHost(1, 0).Use(0, none, 2), "it has no room")
}

func TestStoreGivesUpWhatWasUsedLeastLately(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		const capacity = 20
		s := NewStore(capacity)
		bytesOf := func(id int32) int64 { return 1 + int64(id)%7 }
		var model []int32 // the one that was used last is the last
		used := func(id int32) bool {
			for i, x := range model {
				if x == id {
					model = append(append(model[:i:i], model[i+1:]...), id)
					return true
				}
			}
			return false
		}
		for range rapid.IntRange(1, 200).Draw(r, "calls") {
			id := rapid.Int32Range(0, 30).Draw(r, "id")
			if rapid.Bool().Draw(r, "use") {
				require.Equal(r, used(id), s.Use(id))
				continue
			}
			s.Put(id, bytesOf(id))
			if used(id) {
				continue
			}
			model = append(model, id)
			for sum := int64(0); ; sum = 0 {
				for _, x := range model {
					sum += bytesOf(x)
				}
				if sum <= capacity {
					break
				}
				model = model[1:]
			}
		}
		require.Len(r, s.at, len(model))
	})
	all := NewStore(Unbounded)
	all.Put(1, 1<<62)
	all.Put(2, 1<<62)
	require.True(t, all.Use(1) && all.Use(2))
	small := NewStore(1)
	small.Put(1, 2)
	require.False(t, small.Use(1), "it has no room")
}
