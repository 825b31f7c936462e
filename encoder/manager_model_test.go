package encoder

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/pyset"
	"github.com/ringcache/ringcache/pycompat"
)

// model is the manager once more, as plainly as it can be written: everything is counted anew, and found by
// looking at all there is. It shares the order of sets with the manager, and nothing else.
type model struct {
	g        *pycompat.Generation
	capacity int
	stored   []*stored // in order of allocation
	own      map[string][]change
	freed    []string
	clock    int
	// taken is the room that items took, less what they gave back. Where counts drift, these differ.
	taken int
	last  bool // evict what was released last, as no rule of vLLM does

	evictions int
}

// change is that an input came to a request, or went.
type change struct {
	input int
	gone  bool
}

type stored struct {
	Input
	needs    map[string]bool
	counts   int
	released int // when
	pinned   bool
}

func (m *model) find(identifier string) *stored {
	for _, s := range m.stored {
		if s.Identifier == identifier {
			return s
		}
	}
	return nil
}

// waiting is what could go, in order.
func (m *model) waiting() []*stored {
	var out []*stored
	for _, s := range m.stored {
		if len(s.needs) == 0 && !s.pinned {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b *stored) int { return cmp.Compare(a.released, b.released) })
	return out
}

func (m *model) free() int { return m.capacity - m.taken }

func (m *model) freeable() int {
	n := m.free()
	for _, s := range m.waiting() {
		n += s.counts
	}
	return n
}

func (m *model) set(r Request) pyset.Set {
	var s pyset.Set
	if m.g.Encoder.OwnInputs {
		for _, c := range m.own[r.ID] {
			if c.gone {
				s.Remove(c.input)
			} else {
				s.Add(c.input)
			}
		}
		return s
	}
	for i, in := range r.Inputs {
		if m.find(in.Identifier) != nil {
			s.Add(i)
		}
	}
	return s
}

func (m *model) need(s *stored, r Request, i int) {
	s.needs[r.ID] = true
	m.own[r.ID] = append(m.own[r.ID], change{i, false})
}

func (m *model) check(r Request, i int) bool {
	s := m.find(r.Inputs[i].Identifier)
	if s == nil {
		return false
	}
	m.need(s, r, i)
	return true
}

func (m *model) canAllocate(r Request, i, budget, scheduled int) bool {
	n := r.Inputs[i].Embeds
	if n > budget || n+scheduled > max(m.free(), m.freeable()) {
		return false
	}
	for n+scheduled > m.free() {
		all := m.waiting()
		s := all[0]
		if m.last {
			s = all[len(all)-1]
		}
		m.stored = slices.DeleteFunc(m.stored, func(o *stored) bool { return o == s })
		m.taken -= s.counts
		m.freed = append(m.freed, s.Identifier)
		m.evictions++
	}
	return true
}

func (m *model) allocate(r Request, i int) bool {
	in := r.Inputs[i]
	if m.find(in.Identifier) != nil || in.Embeds > m.free() {
		return false
	}
	s := &stored{Input: in, needs: map[string]bool{}}
	m.stored = append(m.stored, s)
	m.taken += in.Embeds
	m.need(s, r, i)
	return true
}

func (m *model) freeInput(r Request, i int) {
	m.own[r.ID] = append(m.own[r.ID], change{i, true})
	left := m.set(r)
	if m.g.Encoder.OwnInputs && left.Len() == 0 {
		delete(m.own, r.ID)
	}
	s := m.find(r.Inputs[i].Identifier)
	if s == nil || !s.needs[r.ID] {
		return
	}
	if m.g.Encoder.HoldsToLast {
		for other := range left.All() {
			if r.Inputs[other].Identifier == s.Identifier {
				return
			}
		}
	}
	delete(s.needs, r.ID)
	if len(s.needs) == 0 {
		m.clock++
		s.released = m.clock
		if s.counts = s.Embeds; !m.g.Encoder.KeepsCount {
			s.counts = r.Inputs[i].Embeds
		}
	}
}

func (m *model) freeAll(r Request) {
	s := m.set(r)
	if m.g.Encoder.CopiedInputs {
		s = s.Copy()
	}
	for _, i := range slices.Collect(s.All()) {
		m.freeInput(r, i)
	}
}

func (m *model) reported() []string {
	out := []string{}
	for _, f := range m.freed {
		if !m.g.Encoder.SparesAllocated || m.find(f) == nil {
			out = append(out, f)
		}
	}
	return out
}

func (m *model) pin(identifier string, pinned bool) bool {
	s := m.find(identifier)
	if s == nil || !pinned && !s.pinned {
		return false
	}
	if s.pinned && !pinned && len(s.needs) == 0 {
		m.clock++
		s.released = m.clock
	}
	s.pinned = pinned
	return true
}

// lastRule evicts what was released last.
type lastRule struct{}

func (lastRule) Used(Input)          {}
func (lastRule) Dropped(Input, bool) {}
func (lastRule) Victim(released iter.Seq[Input]) (identifier string) {
	for in := range released {
		identifier = in.Identifier
	}
	return identifier
}

// TestManagerIsTheModel: random calls, in every release, with pins, and with another rule in half of the runs.
func TestManagerIsTheModel(t *testing.T) {
	evicted := 0
	for _, g := range pycompat.Releases() {
		t.Run(g.Version, func(t *testing.T) {
			for seed := range uint64(4) {
				evicted += walk(t, g, seed)
			}
		})
	}
	require.Greater(t, evicted, 500)
	t.Logf("%d items were evicted", evicted)
}

// walk returns how many items were evicted.
func walk(t *testing.T, g *pycompat.Generation, seed uint64) int {
	r := rand.New(rand.NewPCG(seed, 1))
	capacity := r.IntN(25)
	mod := &model{g: g, capacity: capacity, own: map[string][]change{}, last: seed%2 == 1}
	o := ManagerOptions{Capacity: capacity, Generation: g}
	if mod.last {
		o.Rule = lastRule{}
	}
	m := newManager(t, o)
	at := ""
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(g.Version, "seed", seed, at)
		}
	})
	var requests []Request
	for n := range 5 {
		q := Request{ID: fmt.Sprint("r", n)}
		for range []int{1, 2, 3, 12, 24}[n] {
			q.Inputs = append(q.Inputs, Input{fmt.Sprint("i", r.IntN(12)), r.IntN(8)})
		}
		requests = append(requests, q)
	}
	for n := range 300 {
		q := requests[r.IntN(len(requests))]
		i := r.IntN(len(q.Inputs))
		identifier := q.Inputs[i].Identifier
		call := r.IntN(20)
		at = fmt.Sprint("step ", n, " call ", call, " request ", q.ID, " input ", i)
		switch call {
		case 0, 1, 2, 3, 4, 5, 6: // as a scheduler does
			hit, err := m.Check(q, i)
			require.NoError(t, err)
			require.Equal(t, mod.check(q, i), hit)
			if hit {
				break
			}
			fallthrough
		case 7:
			budget, scheduled := []int{1 << 30, 1 << 30, 5, -1}[r.IntN(4)], []int{0, 0, 0, 3, 50}[r.IntN(5)]
			fits, err := m.CanAllocate(q, i, budget, scheduled)
			require.NoError(t, err)
			require.Equal(t, mod.canAllocate(q, i, budget, scheduled), fits)
			fallthrough
		case 8:
			require.Equal(t, mod.allocate(q, i), m.Allocate(q, i) == nil)
		case 9, 10:
			require.NoError(t, m.FreeInput(q, i))
			mod.freeInput(q, i)
		case 11, 12, 13, 14:
			require.NoError(t, m.Free(q))
			mod.freeAll(q)
		case 15:
			require.Equal(t, mod.pin(identifier, true), m.Pin(identifier))
		case 16, 17:
			require.Equal(t, mod.pin(identifier, false), m.Unpin(identifier))
		case 18:
			require.Equal(t, mod.reported(), append([]string{}, m.TakeFreed()...))
			mod.freed = nil
		case 19:
			if r.IntN(10) == 0 {
				m.Reset()
				*mod = model{g: g, capacity: capacity, own: map[string][]change{}, last: mod.last, evictions: mod.evictions}
			}
		}
		compareBooks(t, mod, m)
		set := mod.set(q)
		require.Equal(t, slices.Collect(set.All()), m.Inputs(q))
		count, ok := m.Embeds(identifier)
		s := mod.find(identifier)
		require.Equal(t, s != nil, ok)
		if ok {
			require.Equal(t, s.Embeds, count)
		}
	}
	return mod.evictions
}

func compareBooks(t *testing.T, mod *model, m *Manager) {
	require.NoError(t, m.CheckStructure())
	s := m.State()
	require.Equal(t, [3]int{mod.capacity, mod.free(), mod.freeable()}, [3]int{s.Capacity, s.Free, s.Freeable})
	needed, pinned := map[string][]string{}, []string{}
	for _, o := range mod.stored {
		needed[o.Identifier] = slices.Sorted(maps.Keys(o.needs))
		if o.pinned {
			pinned = append(pinned, o.Identifier)
		}
	}
	slices.Sort(pinned)
	require.Equal(t, needed, s.Needed)
	require.Equal(t, pinned, append([]string{}, s.Pinned...))
	released := []Input{}
	for _, o := range mod.waiting() {
		released = append(released, Input{o.Identifier, o.counts})
	}
	require.Equal(t, released, append([]Input{}, s.Released...))
	require.Equal(t, mod.reported(), append([]string{}, s.Freed...))
}
