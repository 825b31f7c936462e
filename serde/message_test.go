package serde_test

import (
	"fmt"
	"io/fs"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/goldentest"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
)

func tensor(n int) *serde.Tensor {
	return &serde.Tensor{DType: "uint8", Shape: []int{n}, Data: make([]byte, n)}
}

// TestItemsInAMessage: several items, among other values, in one document with one
// list of frames, in every form.
func TestItemsInAMessage(t *testing.T) {
	for _, g := range goldentest.ItemForms() {
		t.Run(g.Version, func(t *testing.T) {
			o := serde.Options{Generation: g}
			modality := "image"
			if g.ItemForm == pycompat.ItemMap {
				modality = ""
			}
			items := []*serde.Item{
				{Modality: modality, Elems: []serde.Elem{{Key: "a", Data: tensor(300)}, {Key: "b", Data: []any{tensor(3), int64(1)}}}},
				{Modality: modality, Elems: []serde.Elem{{Key: "c", Data: tensor(400), Field: serde.FlatFromSizes(1, 2)}}},
			}
			frames := [][]byte{{0x93, 0xc0}, make([]byte, 9)} // an array of nil and two items, and a frame of somebody else's
			var err error
			for _, it := range items {
				frames, err = serde.AppendItem(frames, it, o)
				require.NoError(t, err)
			}
			require.Len(t, frames, 4)
			require.Len(t, frames[2], 300)
			require.Len(t, frames[3], 400)

			own := append([][]byte{}, frames...)
			at := 2
			for _, want := range items {
				var it *serde.Item
				it, at, err = serde.ReadItem(own, at, o)
				require.NoError(t, err)
				require.Equal(t, want, it)
			}
			require.Equal(t, len(frames[0]), at)
			require.NotNil(t, own[1])
			require.Nil(t, own[2])
			require.Nil(t, own[3])
			_, _, err = serde.ReadItem(own, 2, o)
			require.ErrorIs(t, err, serde.ErrCorrupt)
			require.ErrorContains(t, err, `tensor of elem "a"`)
			require.ErrorContains(t, err, "got frame 2 again, want a frame of its own")
		})
	}
}

// TestAnItemAloneIsTheSame: in a message of its own an item has the bytes of its Plan.
func TestAnItemAloneIsTheSame(t *testing.T) {
	it := &serde.Item{Elems: []serde.Elem{{Key: "a", Data: tensor(300)}, {Key: "b", Data: tensor(3)}}}
	for _, threshold := range []int{0, -1, 1000} {
		o := serde.Options{InlineThreshold: threshold}
		plan, err := serde.NewPlan(it, o)
		require.NoError(t, err)
		frames, err := serde.AppendItem([][]byte{nil}, it, o)
		require.NoError(t, err)
		require.Equal(t, plan.Frames(), frames)
	}
}

func TestAppendItemRefuses(t *testing.T) {
	old, err := pycompat.Lookup("0.11.0")
	require.NoError(t, err)
	for name, c := range map[string]struct {
		frames [][]byte
		it     *serde.Item
		o      serde.Options
		text   string
	}{
		"no frame":    {nil, &serde.Item{}, serde.Options{}, "item: there is no frame to append to"},
		"nil item":    {[][]byte{nil}, nil, serde.Options{}, "item: it is a nil *Item"},
		"no data":     {[][]byte{nil}, &serde.Item{Elems: []serde.Elem{{Key: "a", Data: &serde.Tensor{DType: "uint8", Shape: []int{3}}}}}, serde.Options{}, `tensor of elem "a": it has no Data; only NewPlan takes layouts`},
		"no modality": {[][]byte{nil}, &serde.Item{Elems: []serde.Elem{{Key: "a"}}}, serde.Options{Generation: old}, "item: vLLM 0.11.0 needs a Modality and at least one elem"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := serde.AppendItem(c.frames, c.it, c.o)
			require.ErrorIs(t, err, fs.ErrInvalid)
			require.ErrorContains(t, err, "cannot encode "+c.text)
		})
	}
}

func TestReadItemRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		frames [][]byte
		at     int
		text   string
	}{
		"no frame":        {nil, 0, "frames: got none, want a main document"},
		"behind the end":  {[][]byte{{0x80}}, 2, "main document at byte 2: got offset is outside the document"},
		"at the end":      {[][]byte{{0x80}}, 1, "main document at byte 1: got the document ends inside a value"},
		"before the head": {[][]byte{{0x80}}, -1, "main document: got offset is outside the document"},
		"something else":  {[][]byte{{0xc0, 0x07}}, 1, "item at byte 1: got an integer, want a map"},
		"no such frame":   {[][]byte{[]byte("\x81\xa1x\x82\xa4data\x93\xa5uint8\x91\x01\x02\xa5field\x92\xa7batched\x80"), {1}}, 0, "got 2, want the index of one of 1 frames"},
		"a nil frame":     {[][]byte{[]byte("\x81\xa1x\x82\xa4data\x93\xa5uint8\x91\x01\x01\xa5field\x92\xa7batched\x80"), nil}, 0, "got frame 1 again, want a frame of its own"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := serde.ReadItem(c.frames, c.at, serde.Options{})
			require.ErrorIs(t, err, serde.ErrCorrupt)
			require.ErrorContains(t, err, c.text)
		})
	}
}

// TestElemsOfOtherTypesAreRefused: Elem.Data is any, and lists what it may be. An int
// is one of them where it is written; the decoder gives int64.
func TestElemsOfOtherTypesAreRefused(t *testing.T) {
	type named int64
	for _, v := range []any{
		float32(1), int32(1), uint8(1), uint(1), "text", []byte{1}, []int64{1}, []string{}, map[string]any{}, named(1), time.Second, new(int64(1)),
		*tensor(1), &serde.NDArray{DType: "|u1"}, &serde.Map{}, serde.Pickle("x"), &serde.Item{}, struct{}{}, complex(1, 0),
	} {
		name := fmt.Sprintf("%T", v)
		t.Run(name, func(t *testing.T) {
			for _, data := range []any{v, []any{int64(1), v}, []any{[]any{v}}} {
				_, err := serde.NewPlan(&serde.Item{Elems: []serde.Elem{{Key: "x", Data: data}}}, serde.Options{})
				require.ErrorIs(t, err, fs.ErrInvalid)
				require.ErrorContains(t, err, `data of elem "x": a `+name+" stands for nothing that an elem can have")
			}
		})
	}
	plan, err := serde.NewPlan(&serde.Item{Elems: []serde.Elem{{Key: "x", Data: []any{5, -70000}}}}, serde.Options{})
	require.NoError(t, err)
	it, err := serde.DecodeItem(plan.Frames(), serde.Options{})
	require.NoError(t, err)
	require.Equal(t, []any{int64(5), int64(-70000)}, it.Elems[0].Data)
}

// TestCloneSharesNothing: neither bytes, nor lists, nor the bounds of slices.
func TestCloneSharesNothing(t *testing.T) {
	whole := func() *serde.Item {
		return &serde.Item{Elems: []serde.Elem{{Key: "x", Data: []any{tensor(2)}, Field: serde.Field{Kind: serde.Flat, Nested: true, Slices: [][]serde.Slice{{serde.Range(1, 2), {Step: new(int64(3))}}}}}}}
	}
	it := whole()
	c := serde.Clone(it).(*serde.Item)
	require.Equal(t, it, c)
	c.Elems[0].Data.([]any)[0].(*serde.Tensor).Data[0]++
	s := c.Elems[0].Field.Slices[0]
	*s[0].Start, *s[0].Stop, *s[1].Step = 7, 8, 9
	s[1].Start = new(int64(1))
	require.Equal(t, whole(), it)
}
