package serde

import (
	"fmt"
	"math"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/pycompat"
)

// strip returns a copy of the item whose tensors are only laid out.
func strip(it *Item) *Item {
	c := Clone(it).(*Item)
	for i := range c.Elems {
		stripData(c.Elems[i].Data)
	}
	return c
}

func stripData(d any) {
	switch d := d.(type) {
	case *Tensor:
		d.Data = nil
	case []any:
		for _, e := range d {
			stripData(e)
		}
	}
}

var sizes = []int{0, 1, 2, 3, 5, 16, 70, 300}

func drawTensor(t *rapid.T) *Tensor {
	names := []DType{"bool", "uint8", "bfloat16", "float32", "int64", "complex128", "float4_e2m1fn_x2"}
	x := &Tensor{DType: rapid.SampledFrom(names).Draw(t, "dtype"), Shape: []int{}}
	for range rapid.IntRange(0, 2).Draw(t, "dims") {
		x.Shape = append(x.Shape, rapid.SampledFrom(sizes).Draw(t, "dim"))
	}
	n, err := x.NBytes()
	require.NoError(t, err)
	x.Data = seq(n, rapid.IntRange(0, 7).Draw(t, "mul"), rapid.IntRange(0, 255).Draw(t, "add"))
	return x
}

func drawData(t *rapid.T, depth int) any {
	switch rapid.IntRange(0, 6).Draw(t, "data") {
	case 0:
		if depth == 0 {
			return nil
		}
		return []any{}
	case 1:
		return rapid.Int64().Draw(t, "int")
	case 2:
		return rapid.Uint64Min(1<<63).Draw(t, "uint")
	case 3:
		return math.Float64frombits(rapid.Uint64().Draw(t, "float"))
	case 4:
		return rapid.Bool().Draw(t, "bool")
	case 5:
		if depth > 3 {
			return int64(0)
		}
		l := []any{}
		for range rapid.IntRange(0, 18).Draw(t, "len") {
			l = append(l, drawData(t, depth+1))
		}
		return l
	default:
		return drawTensor(t)
	}
}

func drawField(t *rapid.T, form pycompat.ItemForm) Field {
	f := Field{Kind: FieldKind(rapid.IntRange(0, 2).Draw(t, "kind"))}
	if form != pycompat.ItemPositional {
		f.KeepOnCPU = rapid.Bool().Draw(t, "keep")
	}
	switch f.Kind {
	case Shared:
		f.BatchSize = rapid.IntRange(0, 1<<40).Draw(t, "batch")
	case Flat:
		f.Dim = rapid.IntRange(-3, 3).Draw(t, "dim")
		n := rapid.IntRange(0, 20).Draw(t, "slices")
		f.Nested = n > 0 && rapid.Bool().Draw(t, "nested")
		bound := func() *int64 {
			if rapid.Bool().Draw(t, "none") {
				return nil
			}
			return new(rapid.Int64().Draw(t, "bound"))
		}
		for range n {
			k := 1
			if f.Nested {
				k = rapid.IntRange(0, 3).Draw(t, "inner")
			}
			l := make([]Slice, k)
			for i := range l {
				l[i] = Slice{bound(), bound(), bound()}
			}
			f.Slices = append(f.Slices, l)
		}
	}
	return f
}

func drawItem(t *rapid.T, form pycompat.ItemForm) *Item {
	it := &Item{}
	least := 0
	if form != pycompat.ItemMap {
		it.Modality = rapid.StringN(1, 8, -1).Draw(t, "modality")
		least = 1
	}
	for i := range rapid.IntRange(least, 20).Draw(t, "elems") {
		// What follows the last '#' is the index, so no two keys are the same.
		it.Elems = append(it.Elems, Elem{
			Key:   fmt.Sprintf("%s#%d", rapid.StringN(0, 40, -1).Draw(t, "key"), i),
			Data:  drawData(t, 0),
			Field: drawField(t, form),
		})
	}
	return it
}

func drawOptions(t *rapid.T) Options {
	return Options{
		Generation:      rapid.SampledFrom(pycompat.Releases()).Draw(t, "vllm"),
		InlineThreshold: rapid.SampledFrom([]int{0, -1, 1, 8, 256, 1 << 20}).Draw(t, "threshold"),
	}
}
