package serde_test

import (
	"bytes"
	"io/fs"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/fuzz/corpus"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
)

func drawAddress(t *rapid.T, g *pycompat.Generation) serde.Address {
	a := serde.Address{Address: rapid.Uint64().Draw(t, "address"), ID: rapid.Uint32().Draw(t, "id")}
	if g.Signed {
		a.Signature = serde.Signature(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "signature"))
		a.Signature[0] |= 1 // zero is none
	}
	return a
}

// sameAddress compares DecodeAddress with DecodeItem and ParseAddress, errors included.
func sameAddress(t require.TestingT, frames [][]byte, o serde.Options) {
	var want serde.Address
	var wantOK bool
	it, wantErr := serde.DecodeItem(frames, o)
	if wantErr == nil {
		want, wantOK, wantErr = serde.ParseAddress(it, o)
	}
	got, ok, err := serde.DecodeAddress(frames, o)
	require.Equal(t, want, got)
	require.Equal(t, wantOK, ok)
	require.Equal(t, wantErr, err)
}

// TestPropertyAddressWire: an address item is the item of NewAddressItem in every
// generation, and reads as one, in any order of its elems, and damaged in any byte.
func TestPropertyAddressWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := rapid.SampledFrom(pycompat.Releases()).Draw(t, "vllm")
		o := serde.Options{Generation: g}
		a, modality := drawAddress(t, g), rapid.StringN(1, 40, 300).Draw(t, "modality")
		it := serde.NewAddressItem(a, modality)
		plan, err := serde.NewPlan(it, o)
		require.NoError(t, err)
		doc, err := serde.EncodeAddress(a, modality, o)
		require.NoError(t, err)
		require.Equal(t, plan.Frames(), [][]byte{doc})
		prefix := []byte("prefix")
		appended, err := serde.AppendAddress(prefix, a, modality, o)
		require.NoError(t, err)
		require.Equal(t, append(prefix, doc...), appended)
		got, ok, err := serde.DecodeAddress([][]byte{doc}, o)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, a, got)

		mixed := &serde.Item{Modality: it.Modality, Elems: rapid.Permutation(it.Elems).Draw(t, "order")}
		if rapid.Bool().Draw(t, "odd") {
			at := rapid.IntRange(0, len(mixed.Elems)-1).Draw(t, "elem")
			switch e := &mixed.Elems[at]; rapid.IntRange(0, 5).Draw(t, "how") {
			case 0:
				e.Field.KeepOnCPU = g.ItemForm != pycompat.ItemPositional
			case 1:
				e.Field = serde.FlatFromSizes(1)
			case 2:
				e.Data = rapid.SampledFrom([]any{nil, true, 1.5, int64(-1), uint64(math.MaxUint64), int64(1 << 32), []any{}}).Draw(t, "data")
			case 3:
				e.Key = "other"
			case 4:
				mixed.Elems = append(mixed.Elems, serde.Elem{Key: "more", Data: int64(1)})
			case 5:
				mixed.Elems = append(mixed.Elems[:at], mixed.Elems[at+1:]...)
			}
		}
		plan, err = serde.NewPlan(mixed, o)
		require.NoError(t, err)
		frames := plan.Frames()
		sameAddress(t, frames, o)
		sameAddress(t, append(frames, []byte{1}), o)
		doc = frames[0]
		for range 20 {
			damaged := bytes.Clone(doc)
			damaged[rapid.IntRange(0, len(doc)-1).Draw(t, "byte")] = rapid.Byte().Draw(t, "value")
			sameAddress(t, [][]byte{damaged}, o)
		}
		sameAddress(t, [][]byte{doc[:rapid.IntRange(0, len(doc)).Draw(t, "cut")]}, o)
		sameAddress(t, [][]byte{append(doc, rapid.Byte().Draw(t, "more"))}, o)
	})
}

// FuzzDecodeAddress holds the direct way equal to the one over items.
func FuzzDecodeAddress(f *testing.F) {
	releases := pycompat.Releases()
	for _, args := range corpus.Entries("item") {
		f.Add(args[0].([]byte), byte(0))
	}
	for i, g := range releases {
		a := serde.Address{Address: 1 << 40, ID: 7}
		if g.Signed {
			a = usualAddress()
		}
		doc, err := serde.EncodeAddress(a, "image", serde.Options{Generation: g})
		require.NoError(f, err)
		f.Add(doc, byte(i))
	}
	f.Fuzz(func(t *testing.T, doc []byte, release byte) {
		sameAddress(t, [][]byte{doc}, serde.Options{Generation: releases[int(release)%len(releases)]})
	})
}

// TestDecodeAddressOfOtherIntegers: MessagePack has several forms of the same number.
func TestDecodeAddressOfOtherIntegers(t *testing.T) {
	a := usualAddress()
	a.ID, a.Signature[3] = 5, 1
	doc, err := serde.EncodeAddress(a, "", serde.Options{})
	require.NoError(t, err)
	long := bytes.Replace(doc, []byte("\xacmonotonic_id\x82\xa4data\x05"), []byte("\xacmonotonic_id\x82\xa4data\xd3\x00\x00\x00\x00\x00\x00\x00\x05"), 1)
	require.NotEqual(t, doc, long)
	sameAddress(t, [][]byte{long}, serde.Options{})
	got, ok, err := serde.DecodeAddress([][]byte{long}, serde.Options{})
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, a, got)
}

func TestAppendAddressRefuses(t *testing.T) {
	old, err := pycompat.Lookup("0.11.0")
	require.NoError(t, err)
	for name, c := range map[string]struct {
		a        serde.Address
		modality string
		g        *pycompat.Generation
		text     string
	}{
		"no signature":     {serde.Address{}, "", nil, "address item: it has no signature, and vLLM " + pycompat.Newest().Version + " needs one"},
		"signature":        {usualAddress(), "image", old, "address item: vLLM 0.11.0 does not know signatures; leave it zero"},
		"no modality":      {serde.Address{}, "", old, "address item: vLLM 0.11.0 needs a modality"},
		"modality, no UTF": {serde.Address{}, "a\xff", old, `address item: the modality "a\xff" is not UTF-8`},
		"generation":       {serde.Address{}, "", &pycompat.Generation{}, "is incomplete"},
	} {
		t.Run(name, func(t *testing.T) {
			dst, err := serde.AppendAddress([]byte("x"), c.a, c.modality, serde.Options{Generation: c.g})
			require.ErrorIs(t, err, fs.ErrInvalid)
			require.ErrorContains(t, err, c.text)
			require.Equal(t, []byte("x"), dst)
			_, _, err = serde.DecodeAddress(nil, serde.Options{Generation: c.g})
			require.Error(t, err)
		})
	}
}
