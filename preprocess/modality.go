package preprocess

import (
	"encoding/binary"
	"fmt"
	"image"
	"slices"

	"github.com/ringcache/ringcache/engine"
	"github.com/ringcache/ringcache/serde"
)

// Modality returns what the items of a processor look like, so that package engine
// can verify them: elems that are flat have any number of rows, of which a token
// takes always as many.
func Modality(p Processor) (engine.Modality, error) {
	l, err := p.Layout(image.Pt(512, 512))
	if err != nil {
		return engine.Modality{}, err
	}
	m := engine.Modality{Tokens: func(*serde.Item) (int, error) { return l.Tokens, nil }}
	for _, e := range l.Item.Elems {
		t, ok := e.Data.(*serde.Tensor)
		if !ok {
			return engine.Modality{}, fmt.Errorf("%w: elem %q is no tensor", ErrLayout, e.Key)
		}
		shape := slices.Clone(t.Shape)
		if e.Field.Kind == serde.Flat {
			m.Tokens = rowsOf(e.Key, shape[0]/l.Tokens)
			shape[0] = -1
		}
		m.Elems = append(m.Elems, engine.ElemSpec{Key: e.Key, DType: t.DType, Shape: shape, Field: e.Field.Kind})
	}
	return m, nil
}

// rowsOf counts tokens by the rows of an elem, which are those of the grid, if the
// item has one.
func rowsOf(key string, perToken int) func(*serde.Item) (int, error) {
	return func(it *serde.Item) (int, error) {
		e, _ := it.Lookup(key)
		rows := e.Data.(*serde.Tensor).Shape[0]
		if rows%perToken != 0 {
			return 0, fmt.Errorf("elem %q has %d rows, which is not a multiple of %d", key, rows, perToken)
		}
		if g, ok := it.Lookup(gridKey); ok {
			n := uint64(1)
			for b := g.Data.(*serde.Tensor).Data; len(b) >= 8; b = b[8:] {
				n = min(n, 1<<31) * min(binary.LittleEndian.Uint64(b), 1<<31)
			}
			if n != uint64(rows) {
				return 0, fmt.Errorf("elem %q has %d rows, and %q says %d", key, rows, gridKey, n)
			}
		}
		return rows / perToken, nil
	}
}

// gridKey is the elem of patches in time, down and across, int64 each.
const gridKey = "image_grid_thw"
