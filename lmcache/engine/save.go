package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/ringcache/ringcache/tier"
)

// A Save stores the KV of a request layer by layer, as an engine computes it. One goroutine uses it at a time.
type Save struct {
	e      *Engine
	lease  *tier.StoreLease // nil after the end
	chunks []*chunk
	slots  []int64
	places [][]tier.Placed // of each chunk, by layer: where it goes; Bytes are nil if it was there
	copied []bool          // which layers Layer has copied
	done   Stored
}

// SaveLayers takes room for all layers of the chunks of a request, until one has no room. Layer copies them,
// and Commit publishes all of them: before, nobody finds any, and Abort leaves nothing. Whoever calls
// SaveLayers calls one of the two.
//
// See docs/decisions.md, "Layers are published together, the first one last".
func (e *Engine) SaveLayers(ctx context.Context, r Request) (*Save, error) {
	if err := e.needLayered(true); err != nil {
		return nil, err
	}
	chunks, err := e.storable(ctx, r)
	if err != nil {
		return nil, err
	}
	s := &Save{e: e, slots: r.Slots, copied: make([]bool, len(e.parts()))}
	if s.lease, err = e.lease(ctx); err != nil {
		return nil, err
	}
	for _, c := range chunks {
		full, err := s.reserve(c)
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			s.Abort()
			return nil, err
		}
		if full {
			break
		}
	}
	return s, nil
}

// reserve takes room for one chunk, and reports whether there is none.
func (s *Save) reserve(c *chunk) (full bool, err error) {
	layers := s.e.parts()
	objects := make([]tier.Object, len(layers))
	for i, layer := range layers {
		objects[i] = s.e.objectOf(c, layer)
	}
	placed := s.lease.Reserve(objects)
	there := 0
	var taken []tier.Key
	for i, p := range placed {
		switch {
		case isThere(p.Err):
			there++
		case isFull(p.Err):
			full = true
		case p.Err != nil:
			return false, p.Err
		default:
			taken = append(taken, objects[i].Key)
		}
	}
	if full {
		s.lease.Abort(taken)
		return true, nil
	}
	if there == len(layers) {
		s.done.There += c.tokens()
		return false, nil
	}
	s.chunks, s.places = append(s.chunks, c), append(s.places, placed)
	return false, nil
}

// Layer copies one layer of all chunks from their slots: after the engine has computed it, and before it
// reuses the slots.
func (s *Save) Layer(layer int) error {
	if s.lease == nil {
		return invalid(errors.New("the Save has ended"))
	}
	if layer < 0 || layer >= len(s.copied) {
		return invalid(fmt.Errorf("layer %d of %d", layer, len(s.copied)))
	}
	if err := s.e.renew(s.lease); err != nil {
		return err
	}
	for i, c := range s.chunks {
		if p := s.places[i][layer]; p.Err == nil {
			if err := s.e.o.Buffers.GatherLayer(p.Bytes, s.e.o.LayerFormat, layer, s.slots[c.start:c.end]); err != nil {
				return err
			}
		}
	}
	s.copied[layer] = true
	return nil
}

// Commit publishes all layers, and ends s. It is refused if Layer was not called for one of them: then, and
// after any other error, nothing was stored that anybody finds.
func (s *Save) Commit() (Stored, error) {
	if s.lease == nil {
		return Stored{}, invalid(errors.New("the Save has ended"))
	}
	defer s.Abort()
	for layer, copied := range s.copied {
		if !copied {
			return Stored{}, invalid(fmt.Errorf("layer %d was not copied", layer))
		}
	}
	if err := held(s.lease); err != nil {
		return Stored{}, err
	}
	// The first layer comes last: LMCache looks for that one alone before it loads a chunk.
	for layer := len(s.copied) - 1; layer >= 0; layer-- {
		var keys []tier.Key
		for i, c := range s.chunks {
			if s.places[i][layer].Err == nil {
				keys = append(keys, s.e.keyOf(c, layer))
			}
		}
		if err := errors.Join(s.lease.Commit(keys)...); err != nil {
			return Stored{}, err
		}
		s.lease.Unpin(keys)
	}
	for _, c := range s.chunks {
		s.done.New += c.tokens()
	}
	return s.done, nil
}

// Abort ends s, and gives up what was not committed. After Commit or Abort it does nothing.
func (s *Save) Abort() {
	if s.lease != nil {
		s.lease.Release()
		s.lease = nil
	}
}
