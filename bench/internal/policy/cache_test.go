package policy

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// fixed values an object by its cost.
type fixed struct{}

func (fixed) Add(it *Item) float64    { return it.Cost }
func (fixed) Hit(float64)             {}
func (fixed) Evict(float64)           {}
func (fixed) Value(v float64) float64 { return v }

// TestVictimsAreOfLeastDensity with few objects, of which the choice is exact.
func TestVictimsAreOfLeastDensity(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	s := NewScored(fixed{}, 100)
	for i := range int32(2000) {
		before := slices.Clone(s.objects)
		s.Put(&Item{ID: i, Size: 1 + rng.Int64N(10), Cost: rng.Float64()})
		var gone, kept float64 = 0, 1e9
		for _, o := range before {
			d := o.it.Cost / float64(o.it.Size)
			if _, ok := s.index[o.it]; ok {
				kept = min(kept, d)
			} else {
				gone = max(gone, d)
			}
		}
		if gone > kept {
			t.Fatalf("evicted %v, kept %v", gone, kept)
		}
		if s.used > 100 || len(s.index) != len(s.objects) {
			t.Fatal("the sizes do not add up")
		}
	}
}

// TestChildrenGoFirst: of trees, an object goes only when none of its children is there, never an ancestor of
// what is put, and never more than fits.
func TestChildrenGoFirst(t *testing.T) {
	for _, exact := range []bool{false, true} {
		rng := rand.New(rand.NewPCG(3, 4))
		s := NewScored(fixed{}, 1000)
		s.Exact = exact
		var all []*Item
		evicted, without := 0, 0
		for i := range int32(5000) {
			it := &Item{ID: i, Size: 1 + rng.Int64N(20), Cost: rng.Float64()}
			if len(all) > 0 && rng.IntN(8) > 0 {
				it.Parent = all[max(0, len(all)-1-rng.IntN(40))]
			}
			all = append(all, it)
			before := len(s.index)
			there := it.Parent == nil || s.Has(it.Parent)
			s.Put(it)
			require.Equal(t, there, s.Has(it), "what has its parent has room here, what has not is worthless")
			if there {
				evicted += before + 1 - len(s.index)
			} else {
				without++
			}
			checkTree(t, s)
		}
		require.Positive(t, evicted)
		require.Positive(t, without)
	}
}

func checkTree[E any](t *testing.T, s *Scored[E]) {
	t.Helper()
	children, used := map[*Item]int{}, int64(0)
	for it, i := range s.index {
		require.Same(t, it, s.objects[i].it)
		used += it.Size
		if it.Parent != nil {
			require.True(t, s.Has(it.Parent), "a child is there without its parent")
			children[it.Parent]++
		}
	}
	require.Len(t, s.index, len(s.objects))
	require.Equal(t, used, s.Used())
	require.LessOrEqual(t, used, s.capacity)
	leaves := 0
	for _, o := range s.objects {
		require.Equal(t, children[o.it], o.children)
		if require.Equal(t, o.children == 0, o.leaf >= 0); o.leaf >= 0 {
			require.Same(t, o.it, s.leaves[o.leaf])
			leaves++
		}
	}
	require.Len(t, s.leaves, leaves)
}

// An exact cache of many objects gives a parent up right after its last child, if that is the least by then;
// one that is not has chosen other victims before.
func TestExactVictims(t *testing.T) {
	for _, exact := range []bool{true, false} {
		s := NewScored(fixed{}, 1000)
		s.Exact = exact
		parent := &Item{ID: 1000, Size: 1, Cost: 0.1}
		child := &Item{ID: 1001, Size: 1, Cost: 0.2, Parent: parent}
		s.Put(parent)
		s.Put(child)
		for i := range int32(998) {
			s.Put(&Item{ID: i, Size: 1, Cost: 1})
		}
		for i := range int32(2) {
			s.Put(&Item{ID: 2000 + i, Size: 1, Cost: 9})
		}
		require.False(t, s.Has(child))
		require.Equal(t, exact, !s.Has(parent))
	}
}

// What is held stays, and what then finds no room is not stored, and changes nothing.
func TestHeldObjectsStay(t *testing.T) {
	a := &Item{ID: 1, Size: 40}
	b := &Item{ID: 2, Size: 40, Parent: a}
	s := NewScored(fixed{}, 100)
	s.Held = func(it *Item) bool { return it == b }
	s.Put(a)
	s.Put(b)
	c := &Item{ID: 3, Size: 30, Parent: a}
	s.Put(c)
	require.False(t, s.Has(c))
	checkTree(t, s)
	s.Held = nil
	s.Put(c)
	require.True(t, s.Has(c))
	require.True(t, s.Has(a))
	require.False(t, s.Has(b))
	checkTree(t, s)
}

// An ancestor of what is put stays, even where it is the only object that could go.
func TestAncestorsOfWhatIsPutStay(t *testing.T) {
	a := &Item{ID: 1, Size: 60}
	s := NewScored(fixed{}, 100)
	s.Put(a)
	s.Put(&Item{ID: 2, Size: 60, Parent: a})
	require.True(t, s.Has(a))
	require.EqualValues(t, 60, s.Used())
	checkTree(t, s)
}

// TestAdmission: what is worth less than what would go for it is not stored, and costs nothing.
func TestAdmission(t *testing.T) {
	s := NewScored(fixed{}, 10)
	s.Exact, s.Admit = true, 2
	s.Put(&Item{ID: 0, Size: 5, Cost: 10})
	s.Put(&Item{ID: 1, Size: 5, Cost: 20})
	cheap, fair := &Item{ID: 2, Size: 5, Cost: 4}, &Item{ID: 3, Size: 5, Cost: 5}
	s.Put(cheap)
	require.False(t, s.Has(cheap))
	require.EqualValues(t, 10, s.Used())
	s.Put(fair)
	require.True(t, s.Has(fair), "it costs no more than twice what it is worth")
	checkTree(t, s)
}

func TestOrders(t *testing.T) {
	for _, tt := range []struct {
		rule *Order
		gone int
	}{{NewLRU(), 1}, {NewFIFO(), 0}} {
		items := []*Item{{ID: 0, Size: 1}, {ID: 1, Size: 9}, {ID: 2, Size: 5}}
		s := NewScored(tt.rule, 10)
		s.Put(items[0])
		s.Put(items[1])
		s.Get(items[0])
		s.Put(&Item{ID: 3, Size: 1})
		for i, it := range items[:2] {
			require.Equal(t, i != tt.gone, s.Has(it), "item %d, whatever its size", i)
		}
	}
}

// The oracle keeps what is used next, by the uses that are still to come.
func TestOracleLooksAhead(t *testing.T) {
	a, b, c := &Item{ID: 0, Size: 1, Cost: 1}, &Item{ID: 1, Size: 1, Cost: 1}, &Item{ID: 2, Size: 1, Cost: 1}
	// When c comes, a has been used just before and comes last; b comes next.
	uses := []*Item{a, b, a, c, b, b, a}
	s := NewScored(NewOracle(uses), 2)
	hits := 0
	for i, it := range uses {
		if s.Get(it) {
			hits++
		} else {
			s.Put(it)
		}
		if i == 3 {
			require.True(t, s.Has(b))
			require.False(t, s.Has(a))
		}
	}
	require.Equal(t, 3, hits)
}
