package serde

import (
	"encoding/hex"
	"fmt"
	"io/fs"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/internal/codec"
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
		it.Elems = append(it.Elems, Elem{
			Key:   fmt.Sprintf("%s%d", rapid.StringN(0, 40, -1).Draw(t, "key"), i),
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

// An item comes back as it was, and one that is laid out first and filled in
// place later has the same bytes.
func TestPropertyItemRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := drawOptions(t)
		it := drawItem(t, o.Generation.ItemForm)
		p, err := NewPlan(it, o)
		require.NoError(t, err)
		require.True(t, p.Complete())
		whole := make([]byte, p.DataLen)
		require.NoError(t, p.CopyTo(whole))

		var joined []byte
		for _, f := range p.Frames() {
			joined = append(joined, f...)
		}
		require.Equal(t, joined, whole)

		m, n, err := ParseMetadata(p.Metadata)
		require.NoError(t, err)
		require.Equal(t, len(p.Metadata), n)
		v, err := DecodeValue(m, whole, o)
		require.NoError(t, err)
		same(t, it, v.(*Item))

		layout, err := NewPlan(strip(it), o)
		require.NoError(t, err)
		require.Equal(t, p.Metadata, layout.Metadata)
		dst := make([]byte, layout.DataLen)
		for i := range dst {
			dst[i] = 0xa5
		}
		require.NoError(t, layout.CopyTo(dst))
		places := layout.Tensors
		require.Len(t, places, len(p.Tensors))
		for i, pl := range places {
			hole := dst[pl.Offset : pl.Offset+pl.Len : pl.Offset+pl.Len]
			for _, b := range hole {
				require.EqualValues(t, 0xa5, b, "CopyTo wrote into a hole")
			}
			copy(hole, p.Tensors[i].Tensor.Data)
			require.Equal(t, place(it, pl), p.Tensors[i].Tensor)
		}
		require.Equal(t, whole, dst)

		// A clone does not share memory with the chunk.
		c := Clone(v).(*Item)
		clear(whole)
		same(t, it, c)
	})
}

// place looks a placement up in the item.
func place(it *Item, p Placement) *Tensor {
	e, _ := it.Lookup(p.Key)
	d := e.Data
	for _, i := range p.Path {
		d = d.([]any)[i]
	}
	return d.(*Tensor)
}

func same(t *rapid.T, want, got *Item) {
	require.Equal(t, want.Modality, got.Modality)
	require.Len(t, got.Elems, len(want.Elems))
	for i := range want.Elems {
		w, g := want.Elems[i], got.Elems[i]
		require.Equal(t, w.Key, g.Key)
		require.True(t, equalData(w.Data, g.Data), "elem %q", w.Key)
		require.Equal(t, w.Field, g.Field)
	}
}

func TestPropertyMetadataRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := Metadata{Type: rapid.StringN(0, 300, -1).Draw(t, "type")}
		if rapid.Bool().Draw(t, "list") {
			m.Lens = rapid.SliceOfN(rapid.Int64Range(0, 1<<40), 0, 3000).Draw(t, "lens")
			if n := len(m.Lens); n > 1 { // a document that can refer to the others
				m.Lens[0] = max(m.Lens[0], 7*int64(n-1))
			}
			for _, n := range m.Lens {
				m.NBytes += n
			}
		} else {
			m.NBytes = rapid.Int64Min(0).Draw(t, "nbytes")
		}
		b := AppendMetadata([]byte("x"), m)
		got, n, err := ParseMetadata(append(b[1:], 1, 2, 3))
		require.NoError(t, err)
		require.Equal(t, len(b)-1, n)
		if m.Lens != nil && len(m.Lens) == 0 {
			m.Lens = []int64{}
		}
		require.Equal(t, m, got)
	})
}

func TestEncodeRefuses(t *testing.T) {
	cyclic := []any{nil}
	cyclic[0] = cyclic
	elem := func(d any, f Field) *Item { return &Item{Elems: []Elem{{"x", d, f}}} }
	old := generation(t, "0.11.0")
	for name, c := range map[string]struct {
		v    Value
		o    Options
		text string
	}{
		"nil value":          {nil, Options{}, "value: it is nil; use *Item, *Tensor or Pickle"},
		"nil item":           {(*Item)(nil), Options{}, "item: it is a nil *Item"},
		"nil tensor":         {(*Tensor)(nil), Options{}, "tensor: it is a nil *Tensor; use a nil Data for None"},
		"empty pickle":       {Pickle{}, Options{}, "Pickle: it is empty, which is no pickle"},
		"nil tensor in data": {elem((*Tensor)(nil), Field{}), Options{}, `tensor of elem "x": it is a nil *Tensor; use a nil Data for None`},
		"short data":         {&Tensor{"int32", []int{2}, make([]byte, 7)}, Options{}, "tensor: int32 [2] takes 8 bytes, Data has 7"},
		"empty, not nil":     {&Tensor{"int32", []int{2}, []byte{}}, Options{}, "tensor: int32 [2] takes 8 bytes, Data has 0"},
		"unknown dtype":      {&Tensor{"float", []int{2}, nil}, Options{}, `tensor: dtype "float" is none that torch prints; use ParseDType for aliases`},
		"negative dim":       {&Tensor{"int32", []int{-1}, nil}, Options{}, "tensor: shape [-1] has a negative dimension, more than 64 or too many elements"},
		"overflow":           {&Tensor{"int32", []int{1 << 31, 1 << 31}, nil}, Options{}, "tensor: shape [2147483648 2147483648] has a negative dimension, more than 64 or too many elements"},
		"overflow, empty":    {&Tensor{"int32", []int{0, 1 << 31, 1 << 31}, nil}, Options{}, "tensor: shape [0 2147483648 2147483648] has a negative dimension, more than 64 or too many elements"},
		"65 dims":            {&Tensor{"int32", make([]int, 65), nil}, Options{}, "has a negative dimension, more than 64 or too many elements"},
		"None in list":       {elem([]any{nil}, Field{}), Options{}, `data of elem "x": None inside a list; vLLM allows it only as the whole data`},
		"cyclic list":        {elem(cyclic, Field{}), Options{}, `data of elem "x": lists are nested deeper than 64`},
		"kind":               {elem(nil, Field{Kind: 3}), Options{}, `field of elem "x": there is no FieldKind(3)`},
		"plain slices":       {elem(nil, Field{Kind: Flat, Slices: [][]Slice{{}}}), Options{}, `field of elem "x": Slices[0] has 0 slices; a list that is not Nested has one each`},
		"batch size":         {elem(nil, Field{Kind: Shared, BatchSize: -1}), Options{}, `field of elem "x": BatchSize is -1`},
		"duplicate":          {&Item{Elems: []Elem{{Key: "a"}, {Key: "a"}}}, Options{}, `item: two elems have the key "a"`},
		"utf-8":              {&Item{Elems: []Elem{{Key: "\xff"}}}, Options{}, "string of elem \"\\xff\": \"\\xff\" is not UTF-8"},
		"no modality":        {elem(nil, Field{}), old, "item: vLLM 0.11.0 needs a Modality and at least one elem"},
		"no elems":           {&Item{Modality: "image"}, old, "item: vLLM 0.11.0 needs a Modality and at least one elem"},
		"sum overflow": {&Item{Elems: []Elem{{Key: "a", Data: &Tensor{"uint8", []int{math.MaxInt}, nil}},
			{Key: "b", Data: &Tensor{"uint8", []int{math.MaxInt}, nil}}}}, Options{}, `tensor of elem "b": the value has more bytes than an int can count`},
		"sum overflow with main": {&Tensor{"uint8", []int{math.MaxInt}, nil}, Options{}, "value: it has more bytes than an int can count"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewPlan(c.v, c.o)
			require.ErrorIs(t, err, fs.ErrInvalid)
			require.ErrorContains(t, err, c.text)
		})
	}
	p, err := NewPlan(zeros("uint8", 3), Options{})
	require.NoError(t, err)
	require.ErrorIs(t, p.CopyTo(make([]byte, 1)), fs.ErrInvalid)
	require.ErrorContains(t, p.CopyTo(make([]byte, 1)), "the destination has 1 bytes, DataLen is")
	// As deep as allowed is fine in both directions.
	var d any = int64(1)
	for range codec.MaxDepth {
		d = []any{d}
	}
	deep, err := NewPlan(elem(d, Field{}), Options{})
	require.NoError(t, err)
	_, err = DecodeItem(deep.Frames(), Options{})
	require.NoError(t, err)
}

// CopyTo must not allocate: it runs over shared memory, per image.
func TestCopyToDoesNotAllocate(t *testing.T) {
	p, err := NewPlan(&Item{Elems: []Elem{{Key: "x", Data: zeros("uint8", 4096)}, {Key: "y", Data: zeros("uint8", 4)}}}, Options{})
	require.NoError(t, err)
	dst := make([]byte, p.DataLen)
	require.Zero(t, testing.AllocsPerRun(100, func() { _ = p.CopyTo(dst) }))
}

func TestInlineThreshold(t *testing.T) {
	for _, c := range []struct{ threshold, n, frames int }{
		{0, 255, 1}, {0, 256, 2}, {1, 0, 1}, {1, 1, 2}, {-1, 1, 2}, {100, 99, 1}, {100, 100, 2},
	} {
		p, err := NewPlan(zeros("uint8", c.n), Options{InlineThreshold: c.threshold})
		require.NoError(t, err)
		require.Len(t, p.Frames(), c.frames, "%+v", c)
	}
}

// TestEmptyTensorWithThreshold0 compares with the frames that vLLM 0.32.0 makes with
// VLLM_MSGPACK_ZERO_COPY_THRESHOLD set to 0 and below: what is not smaller than the
// threshold gets a frame, also if that is empty.
func TestEmptyTensorWithThreshold0(t *testing.T) {
	tensor := func(d DType, data []byte, shape ...int) func(Options) ([][]byte, error) {
		return func(o Options) ([][]byte, error) {
			p, err := NewPlan(&Tensor{DType: d, Shape: shape, Data: data}, o)
			if err != nil {
				return nil, err
			}
			whole := make([]byte, p.DataLen)
			require.NoError(t, p.CopyTo(whole))
			m, _, err := ParseMetadata(p.Metadata)
			require.NoError(t, err)
			back, err := DecodeValue(m, whole, o)
			require.NoError(t, err)
			require.Equal(t, &Tensor{DType: d, Shape: shape, Data: data}, back)
			return p.Frames(), nil
		}
	}
	for _, c := range []struct {
		name             string
		encode           func(Options) ([][]byte, error)
		zero, one, usual []string // with a threshold of 0, 1 and 256
	}{
		{
			"empty tensor", tensor("float32", []byte{}, 0, 4),
			[]string{"93a7666c6f6174333292000401", ""}, []string{"93a7666c6f61743332920004c70003"}, []string{"93a7666c6f61743332920004c70003"},
		}, {
			"scalar tensor", tensor("uint8", []byte{7}, []int{}...),
			[]string{"93a575696e74389001", "07"}, []string{"93a575696e74389001", "07"}, []string{"93a575696e743890d40307"},
		}, {
			"tensor", tensor("uint8", []byte{1}, 1),
			[]string{"93a575696e7438910101", "01"}, []string{"93a575696e7438910101", "01"}, []string{"93a575696e74389101d40301"},
		},
	} {
		for threshold, want := range map[int][]string{-1: c.zero, -1 << 40: c.zero, 1: c.one, 0: c.usual, 256: c.usual} {
			f, err := c.encode(Options{InlineThreshold: threshold})
			require.NoError(t, err)
			var got []string
			for _, b := range f {
				got = append(got, hex.EncodeToString(b))
			}
			require.Equal(t, want, got, "%s, InlineThreshold %d", c.name, threshold)
		}
	}
}

// TestEmptyTensorsOfAnItemWithThreshold0: a frame each, in the order of the
// document, with and without Data.
func TestEmptyTensorsOfAnItemWithThreshold0(t *testing.T) {
	empty := func() *Tensor { return &Tensor{DType: "float32", Shape: []int{0, 4}, Data: []byte{}} }
	it := &Item{Elems: []Elem{
		{Key: "a", Data: []any{empty(), zeros("uint8", 3), []any{empty()}}},
		{Key: "b", Data: empty()},
	}}
	for _, v := range []*Item{it, strip(it)} {
		p, err := NewPlan(v, Options{InlineThreshold: -1})
		require.NoError(t, err)
		m, _, err := ParseMetadata(p.Metadata)
		require.NoError(t, err)
		require.Equal(t, []int64{0, 3, 0, 0}, m.Lens[1:])
		for _, pl := range p.Tensors {
			require.False(t, pl.Inline)
		}
		data := make([]byte, p.DataLen)
		require.NoError(t, p.CopyTo(data))
		back, err := DecodeValue(m, data, Options{})
		require.NoError(t, err)
		require.Equal(t, it, back)
	}
}
