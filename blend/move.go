package blend

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/ringcache/ringcache/blend/rope"
)

// A Chunk is the KV of some tokens that were computed alone, and may be put to any place of a prompt.
type Chunk struct {
	KV
	// Position is that of the first token when the keys were computed.
	Position int
	// Unrotated is set if the keys have no position yet.
	Unrotated bool
}

// A Move puts a chunk into the KV of a prompt: its values as they are, its keys rotated to their new
// positions.
type Move struct {
	dst   KV
	at    int
	chunk Chunk
	// Of all tokens, or one for each if the keys are not rotated.
	rotations []rope.Rotation
}

// NewMove returns the move of a chunk to the tokens of dst from at on, whose positions in the prompt are
// their numbers. Nothing is moved yet. The bytes of dst and chunk must stay valid, and those of chunk
// unchanged, until the last layer has been moved.
func NewMove(t *rope.Table, dst KV, at int, chunk Chunk) (*Move, error) {
	for _, kv := range []KV{dst, chunk.KV} {
		if _, err := View(kv.Shape, kv.Tokens, kv.Bytes); err != nil {
			return nil, err
		}
	}
	if dst.Shape != chunk.Shape {
		return nil, invalid("a chunk of %+v for a prompt of %+v", chunk.Shape, dst.Shape)
	}
	if d := t.Config().HeadDim; d != dst.HeadDim {
		return nil, invalid("heads of %d elements, and rotations of %d", dst.HeadDim, d)
	}
	if at < 0 || chunk.Tokens > dst.Tokens-at {
		return nil, invalid("a chunk of %d tokens at %d of %d", chunk.Tokens, at, dst.Tokens)
	}
	if chunk.Position < 0 || chunk.Position > maxTokens {
		return nil, invalid("a chunk that was computed at position %d; 0 to %d are possible", chunk.Position, maxTokens)
	}
	m := &Move{dst: dst, at: at, chunk: chunk}
	if !chunk.Unrotated {
		m.rotations = []rope.Rotation{t.Shift(at - chunk.Position)}
		return m, nil
	}
	for i := range chunk.Tokens {
		m.rotations = append(m.rotations, t.At(at+i))
	}
	return m, nil
}

// Layer moves one layer. Layers may be moved at the same time, in any order.
func (m *Move) Layer(layer int) error {
	if layer < 0 || layer >= m.dst.Layers {
		return invalid("layer %d of %d", layer, m.dst.Layers)
	}
	row := m.dst.Row()
	from, to := m.at*row, (m.at+m.chunk.Tokens)*row
	copy(m.dst.Values(layer)[from:to], m.chunk.Values(layer))
	keys, old := m.dst.Keys(layer)[from:to], m.chunk.Keys(layer)
	if !m.chunk.Unrotated {
		return m.rotations[0].Apply(keys, old, m.dst.DType)
	}
	for i, r := range m.rotations {
		if err := r.Apply(keys[i*row:(i+1)*row], old[i*row:(i+1)*row], m.dst.DType); err != nil {
			return err
		}
	}
	return nil
}

// MoveAll moves all layers of moves into the same KV with so many goroutines, 0 for one for each processor.
func MoveAll(moves []*Move, workers int) error {
	if workers == 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	layers := 0
	for _, m := range moves {
		layers = max(layers, m.dst.Layers)
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, max(1, min(workers, layers)))
	for w := range errs {
		wg.Go(func() {
			for layer := int(next.Add(1)) - 1; layer < layers; layer = int(next.Add(1)) - 1 {
				for _, m := range moves {
					if err := m.Layer(layer); err != nil {
						errs[w] = err
						return
					}
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
