package encoder

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/ringcache/ringcache/internal/pyset"
	"github.com/ringcache/ringcache/internal/sentinel"
	"github.com/ringcache/ringcache/pycompat"
)

// maxEmbeds bounds every count, so that no sum overflows.
const maxEmbeds = 1<<31 - 1

var errInvalid = sentinel.New(sentinel.Invalid, "encoder: invalid argument")

// Input is one item of a request that an encoder works on.
type Input struct {
	// Identifier is the identity of the item: the identifier of its feature, see [Identifier].
	Identifier string
	// Embeds is the number of embeddings of its output; where the generation counts Tokens, the
	// length of its placeholder.
	Embeds int
}

// Request is what the manager has to know of an engine's request. It must have the same inputs in every call.
type Request struct {
	ID     string
	Inputs []Input
}

// CountError reports an item that is cached, with another number of embeddings than the request has for
// it. The identifier is one that a user chose, for two items. vLLM fails the request.
type CountError struct {
	Identifier    string
	Cached, Asked int // embeddings
}

// Error names the identifier that two items have.
func (e *CountError) Error() string {
	return fmt.Sprintf("encoder: item %q is cached with %d embeddings, and the request has %d for it: refuse the request; two items have one identifier",
		e.Identifier, e.Cached, e.Asked)
}

// ManagerOptions configure a [Manager]. The zero value is valid, and has room for nothing.
type ManagerOptions struct {
	// Capacity is the room on the device, in embeddings.
	Capacity int
	// Generation is the release of vLLM whose manager it is; nil is the newest.
	Generation *pycompat.Generation
	// Rule decides what goes first. nil is vLLM's own rule: what was released first.
	Rule Rule
}

// Validate reports what is wrong with the options, as an fs.ErrInvalid.
func (o ManagerOptions) Validate() error {
	if o.Capacity < 0 || o.Capacity > maxEmbeds {
		return fmt.Errorf("%w: a capacity of %d embeddings; it must be from 0 to %d", errInvalid, o.Capacity, maxEmbeds)
	}
	_, err := pycompat.Resolve(o.Generation)
	return err
}

// Manager is vLLM's EncoderCacheManager (vllm/v1/core/encoder_cache_manager.py), in the form of the
// release of its options. Each method names the one of vLLM that it is.
//
// A scheduler asks for each input of a request: Check; if that is no hit, CanAllocate; and where that allows it,
// Allocate. After each step it hands TakeFreed to the workers, which drop what is in it.
//
// Where vLLM has an assertion, there is an error here, and nothing has changed. Its state differs from
// vLLM's in one case, which its scheduler avoids: what is cached can't be allocated again.
// See docs/decisions.md, "The encoder cache's state is that of the release, defects included".
type Manager struct {
	mu       sync.Mutex
	g        *pycompat.Generation
	rule     Rule
	capacity int

	// free is the room that nothing takes, and freeable that plus the room of what is
	// released. Where the generation has no KeepsCount, both can be more than the capacity.
	free, freeable int
	items          map[string]*item    // by identifier
	released       list                // items that nobody needs, in order of their last release
	requests       map[string]*holding // of every request that has something; with OwnInputs only
	freed          []string            // what was evicted since TakeFreed
}

// item is an item that is cached. It is needed, released, or pinned:
//
//   - needed: requests need it, and its room is neither free nor freeable. Allocate makes it so, and Check.
//   - released: nobody needs it. It is in Manager.released, and its room is freeable. The Free that ends the
//     last need makes it so; Check makes it needed again, and CanAllocate evicts it.
//   - pinned: it stays, also if nobody needs it.
type item struct {
	Input                      // as it was allocated
	needed map[string]struct{} // requests that need it
	counts int                 // while released, or pinned and not needed: embeddings that it stands for
	pinned bool                // it is not released then
	place                      // in the list of released items
}

// holding is which inputs of one request are cached.
type holding struct {
	inputs pyset.Set
	ids    map[int]string // identifiers of these inputs
	times  map[string]int // how many of these inputs have an identifier
}

// NewManager makes the manager of an empty cache.
func NewManager(o ManagerOptions) (*Manager, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	g, err := pycompat.Resolve(o.Generation)
	if err != nil {
		return nil, err
	}
	m := &Manager{g: g, rule: o.Rule, capacity: o.Capacity}
	m.clear()
	return m, nil
}

// clear makes the manager that of an empty cache.
func (m *Manager) clear() {
	m.free, m.freeable = m.capacity, m.capacity
	m.items, m.requests = map[string]*item{}, map[string]*holding{}
	m.released.init()
	m.freed = nil
}

// input returns an input of a request, or what is wrong with the request.
func (m *Manager) input(r Request, i int) (Input, error) {
	if i < 0 || i >= len(r.Inputs) {
		return Input{}, fmt.Errorf("%w: input %d of request %q, which has %d", errInvalid, i, r.ID, len(r.Inputs))
	}
	in := r.Inputs[i]
	if in.Embeds < 0 || in.Embeds > maxEmbeds {
		return Input{}, fmt.Errorf("%w: input %d of request %q has %d embeddings; it must be from 0 to %d",
			errInvalid, i, r.ID, in.Embeds, maxEmbeds)
	}
	if h := m.requests[r.ID]; h != nil {
		if was, ok := h.ids[i]; ok && was != in.Identifier {
			return Input{}, fmt.Errorf("%w: input %d of request %q was %q, and is now %q; a request keeps its inputs, and two need two ids",
				errInvalid, i, r.ID, was, in.Identifier)
		}
	}
	return in, nil
}

// Check reports whether the output for an input is cached. If so, the request needs it from now on. It is
// check_and_update_cache.
//
// An item counts as cached whatever number of embeddings the request has for it; a scheduler compares
// that first, by [Manager.Embeds].
func (m *Manager) Check(r Request, i int) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	in, err := m.input(r, i)
	if err != nil {
		return false, err
	}
	it := m.items[in.Identifier]
	if it == nil {
		return false, nil
	}
	if it.listed() {
		m.released.remove(it)
		m.freeable -= it.counts
	}
	m.need(it, r.ID, i)
	return true, nil
}

// need makes a request need an item for one of its inputs.
func (m *Manager) need(it *item, request string, i int) {
	it.needed[request] = struct{}{}
	if m.g.Encoder.OwnInputs {
		h := m.requests[request]
		if h == nil {
			h = &holding{ids: map[int]string{}, times: map[string]int{}}
			m.requests[request] = h
		}
		h.add(i, it.Identifier)
	}
	if m.rule != nil {
		m.rule.Used(it.Input)
	}
}

// add adds an input that is cached for the request.
func (h *holding) add(i int, identifier string) {
	if !h.inputs.Has(i) {
		h.inputs.Add(i)
		h.ids[i] = identifier
		h.times[identifier]++
	}
}

// remove removes an input that add added, and does nothing for another one.
func (h *holding) remove(i int) {
	identifier, ok := h.ids[i]
	if !ok {
		return
	}
	h.inputs.Remove(i)
	delete(h.ids, i)
	if h.times[identifier]--; h.times[identifier] == 0 {
		delete(h.times, identifier)
	}
}

// CanAllocate reports whether there is room for the output for an input. It is can_allocate.
//
// budget is how many embeddings may still be computed in this step; an input with more has no room. scheduled
// is the room that other inputs of the step will take before this one. What is released is evicted
// as far as that makes room; it stays evicted if the caller does not allocate.
func (m *Manager) CanAllocate(r Request, i, budget, scheduled int) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	in, err := m.input(r, i)
	if err != nil {
		return false, err
	}
	if scheduled < 0 || scheduled > maxEmbeds {
		return false, fmt.Errorf("%w: %d embeddings are scheduled; it must be from 0 to %d",
			errInvalid, scheduled, maxEmbeds)
	}
	need := in.Embeds + scheduled
	switch {
	case in.Embeds > budget:
		return false, nil
	case need <= m.free:
		return true, nil
	case need > m.freeable:
		return false, nil
	}
	for need > m.free {
		it, err := m.victim()
		if err != nil {
			return false, err
		}
		m.evict(it)
	}
	return true, nil
}

// victim chooses what to evict. There is something, since freeable is more than free.
func (m *Manager) victim() (*item, error) {
	if m.rule == nil {
		return m.released.first(), nil
	}
	identifier := m.rule.Victim(func(yield func(Input) bool) {
		for it := range m.released.all() {
			if !yield(it.Input) {
				return
			}
		}
	})
	it := m.items[identifier]
	if it == nil || !it.listed() {
		return nil, fmt.Errorf("%w: the eviction rule chose %q, which is not one of the released items",
			errInvalid, identifier)
	}
	return it, nil
}

// evict drops a released item. The workers learn of it by TakeFreed.
func (m *Manager) evict(it *item) {
	m.released.remove(it)
	delete(m.items, it.Identifier)
	m.freed = append(m.freed, it.Identifier)
	m.free += it.counts
	if m.rule != nil {
		m.rule.Dropped(it.Input, true)
	}
}

// Allocate takes room for the output for an input, which the request needs from now on. It is allocate.
//
// CanAllocate must have reported room, and Check no hit: otherwise Allocate fails, with [CountError] if the item is
// cached with another number of embeddings.
func (m *Manager) Allocate(r Request, i int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	in, err := m.input(r, i)
	if err != nil {
		return err
	}
	if it := m.items[in.Identifier]; it != nil {
		if m.g.Encoder.KeepsCount && it.Embeds != in.Embeds {
			return &CountError{in.Identifier, it.Embeds, in.Embeds}
		}
		return fmt.Errorf("%w: item %q is cached already; an input is allocated when Check reported no hit",
			errInvalid, in.Identifier)
	}
	if in.Embeds > m.free {
		return fmt.Errorf("%w: input %d of request %q has %d embeddings, and there is room for %d; an input is allocated when CanAllocate reported room",
			errInvalid, i, r.ID, in.Embeds, m.free)
	}
	it := &item{Input: in, needed: map[string]struct{}{}}
	m.items[in.Identifier] = it
	m.free -= in.Embeds
	m.freeable -= in.Embeds
	m.need(it, r.ID, i)
	return nil
}

// Embeds returns the number of embeddings with which an item was allocated, and whether it is cached. It
// is get_cached_num_encoder_embeds.
func (m *Manager) Embeds(identifier string) (int, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if it := m.items[identifier]; it != nil {
		return it.Embeds, true
	}
	return 0, false
}

// Inputs returns which inputs of a request are cached, in the order in which Free frees them, that of
// Python's sets. It is get_cached_input_ids. Without OwnInputs in the generation it returns those that other
// requests brought, too.
func (m *Manager) Inputs(r Request) []int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(m.inputs(r).All())
}

// inputs is Inputs under the lock.
func (m *Manager) inputs(r Request) *pyset.Set {
	if m.g.Encoder.OwnInputs {
		if h := m.requests[r.ID]; h != nil {
			return &h.inputs
		}
		return &pyset.Set{}
	}
	var s pyset.Set
	for i, in := range r.Inputs {
		if m.items[in.Identifier] != nil {
			s.Add(i)
		}
	}
	return &s
}

// ManagerState is everything that a manager counts.
type ManagerState struct {
	// Capacity, Free and Freeable are embeddings: Free what nothing takes, and Freeable that plus what
	// would be evicted if need be.
	Capacity, Free, Freeable int
	// Needed are the ids of the requests that need an item, sorted, for every item that is cached.
	Needed map[string][]string
	// Released are the items that nobody needs, what was released first in front, with the embeddings
	// that they stand for.
	Released []Input
	// Pinned are the identifiers of pinned items, sorted.
	Pinned []string
	// Freed is what TakeFreed is about to return.
	Freed []string
}

// State returns what the manager counts.
func (m *Manager) State() ManagerState {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := ManagerState{
		Capacity: m.capacity, Free: m.free, Freeable: m.freeable, Needed: map[string][]string{}, Freed: m.reported(),
	}
	for identifier, it := range m.items {
		s.Needed[identifier] = slices.Sorted(maps.Keys(it.needed))
		if it.pinned {
			s.Pinned = append(s.Pinned, identifier)
		}
	}
	slices.Sort(s.Pinned)
	for it := range m.released.all() {
		s.Released = append(s.Released, Input{it.Identifier, it.counts})
	}
	return s
}
