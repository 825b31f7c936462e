package encoder

import (
	"fmt"
	"maps"
	"slices"
)

// FreeInput ends the need of a request for the output of an input. It is free_encoder_input. An item that
// nobody needs any more stays cached until CanAllocate evicts it. To free what is not cached does nothing.
func (m *Manager) FreeInput(r Request, i int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	in, err := m.input(r, i)
	if err != nil {
		return err
	}
	m.freeInput(r.ID, i, in)
	return nil
}

// Free ends the need of a request for all its items: it was finished, aborted or preempted. It is free.
func (m *Manager) Free(r Request) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	inputs := m.inputs(r)
	if m.g.Encoder.CopiedInputs {
		c := inputs.Copy()
		inputs = &c
	}
	order := slices.Collect(inputs.All())
	for _, i := range order { // all of them first, so that nothing changes if one is wrong
		if _, err := m.input(r, i); err != nil {
			return err
		}
	}
	for _, i := range order {
		m.freeInput(r.ID, i, r.Inputs[i])
	}
	return nil
}

func (m *Manager) freeInput(request string, i int, in Input) {
	h := m.requests[request] // nil without OwnInputs
	if h != nil {
		h.remove(i)
		if h.inputs.Len() == 0 {
			delete(m.requests, request)
		}
	}
	it := m.items[in.Identifier]
	if it == nil {
		return
	}
	if _, ok := it.needed[request]; !ok {
		return
	}
	if m.g.Encoder.HoldsToLast && h != nil && h.times[in.Identifier] > 0 {
		return
	}
	delete(it.needed, request)
	if len(it.needed) > 0 {
		return
	}
	it.counts = it.Embeds
	if !m.g.Encoder.KeepsCount {
		it.counts = in.Embeds
	}
	if !it.pinned {
		m.release(it)
	}
}

// release puts an item that nobody needs behind all others.
func (m *Manager) release(it *item) {
	m.released.push(it)
	m.freeable += it.counts
}

// Pin keeps an item on the device, whoever needs it, until Unpin or Reset, and reports whether it is
// cached. The room of a pinned item that nobody needs is not Freeable. vLLM has no pins.
func (m *Manager) Pin(identifier string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	it := m.items[identifier]
	if it == nil {
		return false
	}
	if it.listed() {
		m.released.remove(it)
		m.freeable -= it.counts
	}
	it.pinned = true
	return true
}

// Unpin undoes Pin, and reports whether the item was pinned. If nobody needs it, it is released as the last.
func (m *Manager) Unpin(identifier string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	it := m.items[identifier]
	if it == nil || !it.pinned {
		return false
	}
	it.pinned = false
	if len(it.needed) == 0 {
		m.release(it)
	}
	return true
}

// TakeFreed returns the identifiers of what was evicted since the last call, in order: workers drop their
// outputs. It is get_freed_mm_hashes. The list grows until it is taken.
//
// Without SparesAllocated in the generation, an item that was evicted and allocated again since is in the
// list, too, and workers lose what was just computed; that is vLLM's defect.
func (m *Manager) TakeFreed() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := m.reported()
	m.freed = nil
	return out
}

func (m *Manager) reported() []string {
	out := slices.Clone(m.freed)
	if m.g.Encoder.SparesAllocated {
		out = slices.DeleteFunc(out, func(identifier string) bool { return m.items[identifier] != nil })
	}
	return out
}

// Reset forgets everything, pins included, as after a change of the model's weights. It is reset, which vLLM has from
// 0.16.0 on. Workers drop all outputs by another call: TakeFreed reports none of them.
func (m *Manager) Reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.rule != nil {
		for _, identifier := range slices.Sorted(maps.Keys(m.items)) {
			m.rule.Dropped(m.items[identifier].Input, false)
		}
	}
	m.clear()
}

// CheckStructure reports what is wrong with the state, for tests.
func (m *Manager) CheckStructure() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	waiting, total, listed := 0, 0, 0
	for it := range m.released.all() {
		if m.items[it.Identifier] != it {
			return fmt.Errorf("encoder: item %q is released and not cached", it.Identifier)
		}
		waiting += it.counts
		listed++
	}
	for identifier, it := range m.items {
		total += it.Embeds
		if it.listed() {
			listed--
		}
		switch {
		case it.Identifier != identifier:
			return fmt.Errorf("encoder: item %q is under %q", it.Identifier, identifier)
		case it.listed() != (len(it.needed) == 0 && !it.pinned):
			return fmt.Errorf("encoder: item %q is released: %t, needed by %d requests, pinned: %t",
				identifier, it.listed(), len(it.needed), it.pinned)
		case m.g.Encoder.KeepsCount && len(it.needed) == 0 && it.counts != it.Embeds:
			return fmt.Errorf("encoder: item %q has %d embeddings, and stands for %d", identifier, it.Embeds, it.counts)
		}
		if !m.g.Encoder.OwnInputs {
			continue
		}
		for request := range it.needed {
			if h := m.requests[request]; h == nil || h.times[identifier] == 0 {
				return fmt.Errorf("encoder: item %q is needed by request %q, which has no input with it",
					identifier, request)
			}
		}
	}
	switch {
	case listed != 0:
		return fmt.Errorf("encoder: %d items more are released than are cached", listed)
	case m.free < 0, m.freeable != m.free+waiting:
		return fmt.Errorf("encoder: %d embeddings are free, %d are released, %d are freeable",
			m.free, waiting, m.freeable)
	case m.g.Encoder.KeepsCount && m.free+total != m.capacity:
		return fmt.Errorf("encoder: %d embeddings are free, and items have %d, of %d", m.free, total, m.capacity)
	case !m.g.Encoder.OwnInputs && len(m.requests) > 0:
		return fmt.Errorf("encoder: %d requests have inputs of their own", len(m.requests))
	}
	for request, h := range m.requests {
		if err := m.checkHolding(request, h); err != nil {
			return err
		}
	}
	return nil
}

func (m *Manager) checkHolding(request string, h *holding) error {
	times := map[string]int{}
	for i, identifier := range h.ids {
		times[identifier]++
		if !h.inputs.Has(i) {
			return fmt.Errorf("encoder: input %d of request %q is in no set", i, request)
		}
	}
	switch {
	case h.inputs.Len() == 0, h.inputs.Len() != len(h.ids):
		return fmt.Errorf("encoder: request %q has %d inputs and %d identifiers", request, h.inputs.Len(), len(h.ids))
	case !maps.Equal(times, h.times):
		return fmt.Errorf("encoder: request %q has %v inputs by identifier, counted %v", request, h.times, times)
	}
	for identifier := range h.times {
		it := m.items[identifier]
		if m.g.Encoder.HoldsToLast && it == nil {
			return fmt.Errorf("encoder: request %q has an input with %q, which is not cached", request, identifier)
		}
		if m.g.Encoder.HoldsToLast && it != nil {
			if _, ok := it.needed[request]; !ok {
				return fmt.Errorf("encoder: request %q has an input with %q, and does not need it", request, identifier)
			}
		}
	}
	return h.inputs.Check()
}
