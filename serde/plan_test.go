package serde

import (
	"io/fs"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/internal/codec"
)

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
