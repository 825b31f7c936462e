package encoder

import (
	"fmt"
	"io/fs"
	"iter"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/pycompat"
)

func newManager(t testing.TB, o ManagerOptions) *Manager {
	t.Helper()
	m, err := NewManager(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.CheckStructure()) })
	return m
}

func generation(t testing.TB, version string) *pycompat.Generation {
	t.Helper()
	g, err := pycompat.Lookup(version)
	require.NoError(t, err)
	return g
}

// schedule does what a scheduler does for one input.
func schedule(t testing.TB, m *Manager, r Request, i int) string {
	t.Helper()
	hit, err := m.Check(r, i)
	require.NoError(t, err)
	if hit {
		return "hit"
	}
	fits, err := m.CanAllocate(r, i, maxEmbeds, 0)
	require.NoError(t, err)
	if !fits {
		return "no"
	}
	require.NoError(t, m.Allocate(r, i))
	return "alloc"
}

func one(id, identifier string, embeds int) Request {
	return Request{id, []Input{{identifier, embeds}}}
}

func TestOptions(t *testing.T) {
	for _, capacity := range []int{-1, maxEmbeds + 1} {
		_, err := NewManager(ManagerOptions{Capacity: capacity})
		require.ErrorIs(t, err, fs.ErrInvalid)
		require.ErrorContains(t, err, strconv.Itoa(capacity))
	}
	_, err := NewManager(ManagerOptions{Generation: &pycompat.Generation{Version: "mine"}})
	require.ErrorIs(t, err, fs.ErrInvalid)
	m := newManager(t, ManagerOptions{})
	require.Equal(t, "no", schedule(t, m, one("r", "a", 1), 0))
	require.Equal(t, "alloc", schedule(t, m, one("r", "b", 0), 0), "what has no embeddings needs no room")
}

func TestBadRequestsChangeNothing(t *testing.T) {
	m := newManager(t, ManagerOptions{Capacity: 10})
	r := Request{"r", []Input{{"a", 4}, {"b", -1}, {"c", maxEmbeds + 1}, {"d", 11}}}
	require.NoError(t, m.Allocate(r, 0))
	before := m.State()
	for _, i := range []int{-1, 1, 2, 4} {
		_, err := m.Check(r, i)
		require.ErrorIs(t, err, fs.ErrInvalid)
		require.ErrorContains(t, err, fmt.Sprintf("input %d of request \"r\"", i))
		_, err = m.CanAllocate(r, i, 100, 0)
		require.ErrorIs(t, err, fs.ErrInvalid)
		require.ErrorIs(t, m.Allocate(r, i), fs.ErrInvalid)
		require.ErrorIs(t, m.FreeInput(r, i), fs.ErrInvalid)
	}
	for _, scheduled := range []int{-1, maxEmbeds + 1} {
		_, err := m.CanAllocate(r, 0, 100, scheduled)
		require.ErrorIs(t, err, fs.ErrInvalid)
		require.ErrorContains(t, err, strconv.Itoa(scheduled))
	}
	err := m.Allocate(r, 3)
	require.ErrorIs(t, err, fs.ErrInvalid)
	require.ErrorContains(t, err, "11 embeddings, and there is room for 6")
	require.Equal(t, before, m.State())

	// A request that has other inputs than before.
	other := Request{"r", []Input{{"z", 4}}}
	for _, err := range []error{second(m.Check(other, 0)), second(m.CanAllocate(other, 0, 9, 0)), m.Allocate(other, 0), m.FreeInput(other, 0), m.Free(other)} {
		require.ErrorIs(t, err, fs.ErrInvalid)
		require.ErrorContains(t, err, `was "a", and is now "z"`)
	}
	require.ErrorIs(t, m.Free(Request{ID: "r"}), fs.ErrInvalid, "its input 0 is missing")
	require.Equal(t, before, m.State())
}

func second[T any](_ T, err error) error { return err }

// vLLM asserts these; here nothing is left of the attempt.
func TestAllocateOfWhatIsCached(t *testing.T) {
	m := newManager(t, ManagerOptions{Capacity: 20, Generation: generation(t, "0.31.0")})
	require.NoError(t, m.Allocate(one("r", "a", 4), 0))
	before := m.State()
	err := m.Allocate(one("s", "a", 5), 0)
	var count *CountError
	require.ErrorAs(t, err, &count)
	require.Equal(t, CountError{"a", 4, 5}, *count)
	require.ErrorContains(t, err, "refuse the request")
	err = m.Allocate(one("s", "a", 4), 0)
	require.ErrorIs(t, err, fs.ErrInvalid)
	require.NotErrorAs(t, err, &count)
	require.Equal(t, before, m.State())
	n, ok := m.Embeds("a")
	require.True(t, ok)
	require.Equal(t, 4, n)
	_, ok = m.Embeds("b")
	require.False(t, ok)

	// Once it was evicted, the count is forgotten.
	require.NoError(t, m.Free(one("r", "a", 4)))
	require.Equal(t, "alloc", schedule(t, m, one("t", "b", 20), 0))
	require.Equal(t, []string{"a"}, m.TakeFreed())
	require.NoError(t, m.Free(one("t", "b", 20)))
	require.Equal(t, "alloc", schedule(t, m, one("s", "a", 5), 0))

	old := newManager(t, ManagerOptions{Capacity: 20, Generation: generation(t, "0.30.0")})
	require.NoError(t, old.Allocate(one("r", "a", 4), 0))
	require.ErrorIs(t, old.Allocate(one("s", "a", 5), 0), fs.ErrInvalid)
}

// A request with one item three times, which frees them one by one.
func TestSameItemTwice(t *testing.T) {
	r := Request{"r", []Input{{"a", 4}, {"b", 1}, {"a", 4}, {"a", 4}}}
	for version, releasedAfter := range map[string]int{"0.28.0": 1, "0.29.0": 3, "0.33.0": 3} {
		m := newManager(t, ManagerOptions{Capacity: 10, Generation: generation(t, version)})
		require.Equal(t, "alloc", schedule(t, m, r, 0))
		require.Equal(t, "hit", schedule(t, m, r, 2))
		require.Equal(t, "hit", schedule(t, m, r, 2), "again")
		require.Equal(t, "hit", schedule(t, m, r, 3))
		require.Equal(t, 6, m.State().Free, "the room of one")
		require.Equal(t, []int{0, 2, 3}, m.Inputs(r))
		for n, i := range []int{2, 0, 3} {
			require.NoError(t, m.FreeInput(r, i))
			require.Equal(t, n+1 >= releasedAfter, len(m.State().Released) == 1, "%s after %d", version, n+1)
		}
		require.Empty(t, m.Inputs(r))
	}
}

// What was evicted and allocated again before workers were told.
func TestEvictedAndAllocatedAgain(t *testing.T) {
	for version, want := range map[string][]string{"0.27.1": {"a", "b"}, "0.28.0": {"b"}, "0.33.0": {"b"}} {
		m := newManager(t, ManagerOptions{Capacity: 4, Generation: generation(t, version)})
		require.Equal(t, "alloc", schedule(t, m, one("r", "a", 4), 0))
		require.NoError(t, m.Free(one("r", "a", 4)))
		require.Equal(t, "alloc", schedule(t, m, one("s", "b", 4), 0))
		require.NoError(t, m.Free(one("s", "b", 4)))
		require.Equal(t, "alloc", schedule(t, m, one("t", "a", 4), 0))
		require.Equal(t, want, m.State().Freed, version)
		require.Equal(t, want, m.TakeFreed(), version)
		require.Empty(t, m.TakeFreed())
	}
}

// Which inputs of a request are cached, before and after requests had inputs of their own.
func TestInputsOfOthers(t *testing.T) {
	mine := Request{"mine", []Input{{"a", 1}, {"b", 1}, {"c", 1}}}
	for version, want := range map[string][]int{"0.22.1": {0, 1}, "0.23.0": {1}} {
		m := newManager(t, ManagerOptions{Capacity: 9, Generation: generation(t, version)})
		require.NoError(t, m.Allocate(one("other", "a", 1), 0))
		require.NoError(t, m.Allocate(mine, 1))
		require.Equal(t, want, m.Inputs(mine))
		require.NoError(t, m.Free(mine))
		require.Equal(t, []string{"other"}, m.State().Needed["a"])
	}
}

// Python's set {1, 8} is iterated as 8, 1, so what input 8 has is evicted first. Before 0.15.0 it was a copy of
// the set that was iterated.
func TestFreedInTheOrderOfPythonsSets(t *testing.T) {
	r := Request{ID: "r"}
	for i := range 20 {
		r.Inputs = append(r.Inputs, Input{fmt.Sprint("i", i), 1})
	}
	for _, c := range []struct {
		version string
		inputs  []int
		want    []string
	}{
		{"0.11.0", []int{1, 8}, []string{"i8", "i1"}},
		{"0.22.1", []int{1, 8}, []string{"i8", "i1"}},
		{"0.33.0", []int{8, 1}, []string{"i8", "i1"}},
		{"0.14.1", []int{1, 2, 3, 4, 16}, []string{"i16", "i1", "i2", "i3", "i4"}}, // 16 places in the copy
		{"0.15.0", []int{1, 2, 3, 4, 16}, []string{"i1", "i2", "i3", "i4", "i16"}}, // 32 places
	} {
		m := newManager(t, ManagerOptions{Capacity: 20, Generation: generation(t, c.version)})
		for _, i := range c.inputs {
			require.Equal(t, "alloc", schedule(t, m, r, i))
		}
		require.NoError(t, m.Free(r))
		fits, err := m.CanAllocate(one("s", "large", 20), 0, 20, 0)
		require.NoError(t, err)
		require.True(t, fits)
		require.Equal(t, c.want, m.TakeFreed(), "%s %v", c.version, c.inputs)
	}
}

// Before 0.31.0 an item stood for as many embeddings as the request that freed it last had for it.
func TestCountsDriftBefore0310(t *testing.T) {
	for version, want := range map[string][2]int{"0.30.0": {13, 13}, "0.31.0": {10, 10}} {
		m := newManager(t, ManagerOptions{Capacity: 10, Generation: generation(t, version)})
		require.NoError(t, m.Allocate(one("r", "a", 4), 0))
		require.Equal(t, "hit", schedule(t, m, one("s", "a", 7), 0))
		require.NoError(t, m.Free(one("r", "a", 4)))
		require.NoError(t, m.Free(one("s", "a", 7)))
		fits, err := m.CanAllocate(one("t", "b", 10), 0, 10, 0)
		require.NoError(t, err)
		require.True(t, fits)
		require.Equal(t, want, [2]int{m.State().Free, m.State().Freeable}, version)
	}
}

func TestPinned(t *testing.T) {
	m := newManager(t, ManagerOptions{Capacity: 10})
	require.False(t, m.Pin("a"), "it is not cached")
	require.False(t, m.Unpin("a"))
	r := Request{"r", []Input{{"a", 4}, {"b", 4}}}
	require.Equal(t, "alloc", schedule(t, m, r, 0))
	require.Equal(t, "alloc", schedule(t, m, r, 1))
	require.True(t, m.Pin("a"))
	require.True(t, m.Pin("a"))
	require.NoError(t, m.Free(r))
	require.Equal(t, []string{"a"}, m.State().Pinned)
	require.Equal(t, 6, m.State().Freeable)
	require.Equal(t, "no", schedule(t, m, one("s", "c", 7), 0), "a stays")
	require.Empty(t, m.TakeFreed())
	require.Equal(t, "alloc", schedule(t, m, one("s", "c", 6), 0))
	require.Equal(t, []string{"b"}, m.TakeFreed())
	require.Equal(t, "hit", schedule(t, m, r, 0))
	require.NoError(t, m.Free(r))
	require.NoError(t, m.CheckStructure())

	require.True(t, m.Unpin("a"))
	require.False(t, m.Unpin("a"))
	require.Equal(t, []Input{{"a", 4}}, m.State().Released)
	require.True(t, m.Pin("a"), "while it is released")
	require.Empty(t, m.State().Released)
	require.NoError(t, m.CheckStructure())
	require.Equal(t, "hit", schedule(t, m, r, 0))
	require.True(t, m.Unpin("a"), "while it is needed")
	require.Empty(t, m.State().Released)
	require.NoError(t, m.Free(r))
	require.Equal(t, []Input{{"a", 4}}, m.State().Released)
	require.True(t, m.Pin("a"))
	m.Reset()
	require.Equal(t, ManagerState{Capacity: 10, Free: 10, Freeable: 10, Needed: map[string][]string{}}, m.State())
}

func TestReset(t *testing.T) {
	m := newManager(t, ManagerOptions{Capacity: 4})
	require.Equal(t, "alloc", schedule(t, m, one("r", "a", 4), 0))
	require.NoError(t, m.Free(one("r", "a", 4)))
	require.Equal(t, "alloc", schedule(t, m, one("r", "b", 4), 0))
	m.Reset()
	require.Empty(t, m.TakeFreed())
	require.NoError(t, m.Free(one("r", "b", 4)))
	require.Equal(t, "alloc", schedule(t, m, one("r", "c", 4), 0), "the room is there again, and r may have other inputs")
}

// The rule by cost keeps what returns, and what is dear.
func TestByCost(t *testing.T) {
	m := newManager(t, ManagerOptions{Capacity: 10, Rule: ByCost(func(in Input) time.Duration {
		if in.Identifier == "dear" {
			return time.Hour
		}
		return time.Millisecond
	})})
	use := func(identifier string, embeds int) string {
		r := one("r", identifier, embeds)
		defer func() { require.NoError(t, m.Free(r)) }()
		return schedule(t, m, r, 0)
	}
	require.Equal(t, "alloc", use("dear", 5))
	require.Equal(t, "alloc", use("none", 0))
	for i := range 50 {
		require.Equal(t, "alloc", use(fmt.Sprint("cheap", i), 5))
	}
	require.Equal(t, "hit", use("dear", 5), "in order of release it would have gone")
	require.Equal(t, "hit", use("none", 0), "it makes no room")
	m.Reset()
	require.Equal(t, "alloc", use("dear", 5))

	// Of two that are missed alike, the larger goes, though the smaller was released first.
	sizes := newManager(t, ManagerOptions{Capacity: 10, Rule: ByCost(func(Input) time.Duration { return time.Second })})
	for _, r := range []Request{one("r", "small", 2), one("s", "large", 8)} {
		require.Equal(t, "alloc", schedule(t, sizes, r, 0))
	}
	require.NoError(t, sizes.Free(one("r", "small", 2)))
	require.NoError(t, sizes.Free(one("s", "large", 8)))
	require.Equal(t, "alloc", schedule(t, sizes, one("t", "new", 2), 0))
	require.Equal(t, []string{"large"}, sizes.TakeFreed())

	loop := func(rule Rule) (hits int) {
		m := newManager(t, ManagerOptions{Capacity: 100, Rule: rule})
		for i := range 20_000 {
			r := one("r", "loop"+strconv.Itoa(i%30), 5)
			if schedule(t, m, r, 0) == "hit" {
				hits++
			}
			require.NoError(t, m.Free(r))
			m.TakeFreed()
		}
		return hits
	}
	require.Zero(t, loop(nil), "of a loop over 30 items, with room for 20, the order of release hits none")
	require.Greater(t, loop(ByCost(nil)), 5_000)
}

// What was evicted and came back counts as a return. What was cleared teaches nothing. Neither is kept.
func TestByCostLearnsFromWhatWentTooSoon(t *testing.T) {
	value := func(evicted bool) float64 {
		r := ByCost(nil).(*byCost)
		for i := range 5000 {
			in := Input{strconv.Itoa(i % 5), 1}
			r.Used(in)
			if i == 4999 {
				require.Len(t, r.entries, 1)
				return r.values.Value(r.entries[in.Identifier])
			}
			r.Dropped(in, evicted)
			r.Dropped(in, evicted)
		}
		return 0
	}
	require.Greater(t, value(true), 2*value(false))
}

func TestByCostCountsHits(t *testing.T) {
	r := ByCost(nil).(*byCost)
	in := Input{"a", 1}
	r.Used(in)
	before := *r.entries["a"]
	r.Used(in)
	require.NotEqual(t, before, *r.entries["a"], "a return is in its history")
	require.True(t, r.entries["a"].Live())
}

// wrongRule chooses what must not go.
type wrongRule struct{ choice string }

func (wrongRule) Used(Input)                      {}
func (wrongRule) Dropped(Input, bool)             {}
func (r wrongRule) Victim(iter.Seq[Input]) string { return r.choice }

func TestRuleThatIsWrong(t *testing.T) {
	for _, choice := range []string{"needed", "pinned", "unknown", ""} {
		m := newManager(t, ManagerOptions{Capacity: 12, Rule: wrongRule{choice}})
		for _, identifier := range []string{"needed", "pinned", "released"} {
			require.Equal(t, "alloc", schedule(t, m, one(identifier, identifier, 4), 0))
		}
		m.Pin("pinned")
		require.NoError(t, m.Free(one("pinned", "pinned", 4)))
		require.NoError(t, m.Free(one("released", "released", 4)))
		before := m.State()
		_, err := m.CanAllocate(one("r", "x", 4), 0, 4, 0)
		require.ErrorIs(t, err, fs.ErrInvalid)
		require.ErrorContains(t, err, strconv.Quote(choice))
		require.Equal(t, before, m.State())
	}
}

// recorder writes down what a manager calls, and goes by the order of release.
type recorder struct{ calls []string }

func (r *recorder) Used(in Input) { r.calls = append(r.calls, "used "+in.Identifier) }
func (r *recorder) Dropped(in Input, evicted bool) {
	r.calls = append(r.calls, fmt.Sprintf("dropped %s %t", in.Identifier, evicted))
}

func (r *recorder) Victim(released iter.Seq[Input]) string {
	for in := range released {
		r.calls = append(r.calls, "victim "+in.Identifier)
		return in.Identifier
	}
	return ""
}

func TestWhatARuleIsTold(t *testing.T) {
	r := &recorder{}
	m := newManager(t, ManagerOptions{Capacity: 8, Rule: r})
	two := Request{"two", []Input{{"a", 4}, {"b", 4}}}
	require.Equal(t, "alloc", schedule(t, m, two, 0))
	require.Equal(t, "alloc", schedule(t, m, two, 1))
	require.Equal(t, "hit", schedule(t, m, two, 1))
	require.NoError(t, m.Free(two))
	require.Equal(t, "alloc", schedule(t, m, one("r", "c", 4), 0))
	m.Reset()
	require.Equal(t, []string{"used a", "used b", "used b", "victim a", "dropped a true", "used c", "dropped b false", "dropped c false"}, r.calls)
}

func TestManyGoroutines(t *testing.T) {
	m := newManager(t, ManagerOptions{Capacity: 40, Rule: ByCost(nil)})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			r := Request{fmt.Sprint("r", g), nil}
			for i := range 6 {
				r.Inputs = append(r.Inputs, Input{fmt.Sprint("i", (g+i)%9), 5})
			}
			for n := range 400 {
				i := n % 6
				// Another goroutine may take the room or the item between two calls.
				if hit, err := m.Check(r, i); err == nil && !hit {
					if fits, err := m.CanAllocate(r, i, 10, 0); err == nil && fits {
						_ = m.Allocate(r, i)
					}
				}
				m.Pin(r.Inputs[i].Identifier)
				m.Unpin(r.Inputs[i].Identifier)
				m.TakeFreed()
				if n%5 == 4 {
					_ = m.Free(r)
				}
				_ = m.State()
			}
			_ = m.Free(r)
		})
	}
	wg.Wait()
	s := m.State()
	require.Equal(t, 40, s.Freeable)
}
