package serde

import (
	"bytes"
	"encoding/hex"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/pycompat"
)

// The vectors of the reference description, sections 11.2 and 11.3.

func TestVectorMetadata(t *testing.T) {
	const item = "MultiModalKwargsItem"
	for _, c := range []struct {
		m      Metadata
		hex    string
		python bool
	}{
		{Metadata{item, 560, []int64{48, 512}}, "80059526000000000000008c144d756c74694d6f64616c4b77617267734974656d944d30025d94284b304d00026587942e", true},
		{Metadata{item, 3, []int64{3}}, "80059521000000000000008c144d756c74694d6f64616c4b77617267734974656d944b035d944b036187942e", true},
		{Metadata{item, 300, []int64{100, 100, 100}}, "80059527000000000000008c144d756c74694d6f64616c4b77617267734974656d944d2c015d94284b644b644b646587942e", true},
		{Metadata{"Tensor", 70000, []int64{24, 69976}}, "8005951c000000000000008c0654656e736f72944a701101005d94284b184a581101006587942e", true},
		{Metadata{"bytes", 21, nil}, "8005950e000000000000008c056279746573944b154e87942e", true},
		{Metadata{item, 2147483653, []int64{100, 2147483553}}, "8005952c000000000000008c144d756c74694d6f64616c4b77617267734974656d948a0505000080005d94284b644aa1ffff7f6587942e", true},
		{Metadata{item, 560, []int64{48, 512}}, "8002288c144d756c74694d6f64616c4b77617267734974656d4a300200005d284b304a0002000065742e", false},
		{Metadata{item, 3, []int64{3}}, "8002288c144d756c74694d6f64616c4b77617267734974656d4b035d284b0365742e", false},
	} {
		raw := unhex(t, c.hex)
		for _, tail := range []string{"", "\x00", strings.Repeat("\x95.", 40)} {
			m, n, err := ParseMetadata(append(raw[:len(raw):len(raw)], tail...))
			require.NoError(t, err, c.hex)
			require.Equal(t, len(raw), n)
			require.Equal(t, c.m, m)
		}
		if c.python {
			require.Equal(t, c.hex, hex.EncodeToString(AppendMetadata(nil, c.m)))
		}
	}
}

func generation(t testing.TB, v string) Options {
	g, err := pycompat.Lookup(v)
	require.NoError(t, err)
	return Options{Generation: g}
}

func zeros(d DType, shape ...int) *Tensor {
	x := &Tensor{DType: d, Shape: shape}
	n, _ := x.NBytes()
	x.Data = make([]byte, n)
	return x
}

func TestVectorItems(t *testing.T) {
	g1 := []Elem{{Key: "field1", Data: zeros("int8", 10), Field: Field{Kind: Shared, BatchSize: 1}}}
	flat := func(dim int, s ...[]Slice) Field { return Field{Kind: Flat, Nested: true, Slices: s, Dim: dim} }
	for _, c := range []struct {
		name, vllm string
		it         *Item
		hex        string
	}{
		{"G1", "0.33.0", &Item{Elems: g1}, "81a66669656c643182a46461746193a4696e7438910ac70a0300000000000000000000a56669656c6492a673686172656482ab6b6565705f6f6e5f637075c2aa62617463685f73697a6501"},
		{"G1 keyed", "0.13.0", &Item{"image", g1}, "9184a86d6f64616c697479a5696d616765a36b6579a66669656c6431a46461746193a4696e7438910ac70a0300000000000000000000a56669656c6492a673686172656482ab6b6565705f6f6e5f637075c2aa62617463685f73697a6501"},
		{"G1 positional", "0.11.0", &Item{"image", g1}, "9184a86d6f64616c697479a5696d616765a36b6579a66669656c6431a46461746193a4696e7438910ac70a0300000000000000000000a56669656c6492a673686172656401"},
		{"G2", "0.33.0", NewAddressItem(Address{Address: 100, ID: 3}, ""), "82a76164647265737382a46461746164a56669656c6492a76261746368656481ab6b6565705f6f6e5f637075c2ac6d6f6e6f746f6e69635f696482a46461746103a56669656c6492a76261746368656481ab6b6565705f6f6e5f637075c2"},
		{"G4", "0.33.0", &Item{Elems: []Elem{{Key: "dummy", Data: zeros("uint8", 512), Field: Field{Kind: Shared, BatchSize: 1}}}}, "81a564756d6d7982a46461746193a575696e743891cd020001a56669656c6492a673686172656482ab6b6565705f6f6e5f637075c2aa62617463685f73697a6501"},
		{"G5", "0.33.0", &Item{Elems: []Elem{{Key: "p", Data: &Tensor{"int64", []int{3}, unhex(t, "010000000000000002000000000000000300000000000000")}, Field: FlatFromSizes(3, 4)}}}, "81a17082a46461746193a5696e7436349103c71803010000000000000002000000000000000300000000000000a56669656c6492a4666c617483ab6b6565705f6f6e5f637075c2a6736c696365739291930003c091930307c0a364696d00"},
		{"G6", "0.33.0", &Item{Elems: []Elem{{Key: "a"}}}, "81a16182a464617461c0a56669656c6492a76261746368656481ab6b6565705f6f6e5f637075c2"},
		{"G7", "0.33.0", &Item{Elems: []Elem{{Key: "n", Data: []any{&Tensor{"int64", []int{}, unhex(t, "0700000000000000")}, float64(1.5), []any{int64(2)}}}}}, "81a16e82a4646174619393a5696e74363490d7030700000000000000cb3ff80000000000009102a56669656c6492a76261746368656481ab6b6565705f6f6e5f637075c2"},
		{"G8", "0.33.0", &Item{Elems: []Elem{{Key: "e", Data: zeros("float32", 0, 4)}}}, "81a16582a46461746193a7666c6f61743332920004c70003a56669656c6492a76261746368656481ab6b6565705f6f6e5f637075c2"},
	} {
		o := generation(t, c.vllm)
		p, err := NewPlan(c.it, o)
		require.NoError(t, err, c.name)
		require.Equal(t, c.hex, hex.EncodeToString(p.Frames()[0]), c.name)
		back, err := DecodeItem(p.Frames(), o)
		require.NoError(t, err, c.name)
		equalItem(t, c.it, back)
	}

	// G9: a map whose value is a list of KwargsItems, of vLLM's own test.
	k := []modalityItems{
		{"audio", []*Item{{Elems: []Elem{{Key: "a0", Data: zeros("bfloat16", 1000)}}}}},
		{"video", []*Item{{Elems: []Elem{{Key: "v0", Data: []any{zeros("int8", 1000), zeros("int8", 1000), zeros("int8", 1000), zeros("int8", 1000)},
			Field: flat(0, []Slice{{new(int64(1)), new(int64(2)), new(int64(3))}, {new(int64(4)), new(int64(5)), new(int64(6))}}, []Slice{{nil, new(int64(2)), nil}})}}}}},
		{"image", []*Item{{Elems: []Elem{
			{Key: "i0", Data: zeros("int32", 1000), Field: Field{Kind: Shared, BatchSize: 4}},
			{Key: "i1", Data: zeros("int32", 1000), Field: Field{Kind: Flat, Dim: 2, Slices: [][]Slice{{{new(int64(1)), new(int64(2)), new(int64(3))}}, {{new(int64(4)), new(int64(5)), new(int64(6))}}}}},
		}}}},
	}
	e, err := newEncoder(Options{})
	require.NoError(t, err)
	e.Map(1)
	e.Text("mm")
	e.Array(1)
	writeItems(e, k)
	f, err := e.Frames()
	require.NoError(t, err)
	g9(t, f)
}

func TestVectorAddressLengths(t *testing.T) {
	var sig Signature
	for i := range sig {
		sig[i] = byte(i)
	}
	b, err := EncodeAddress(Address{100, 3, sig}, "", Options{})
	require.NoError(t, err)
	require.Len(t, b, 174)
	it, err := DecodeItem([][]byte{b}, Options{})
	require.NoError(t, err)
	a, ok, err := ParseAddress(it, Options{})
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, Address{100, 3, sig}, a)

	for _, v := range []string{"0.11.0", "0.13.0", "0.31.0"} {
		o := generation(t, v)
		b, err := EncodeAddress(Address{Address: 1<<64 - 1, ID: 7}, "image", o)
		require.NoError(t, err)
		it, err := DecodeItem([][]byte{b}, o)
		require.NoError(t, err)
		a, ok, err := ParseAddress(it, o)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, Address{Address: 1<<64 - 1, ID: 7}, a)
		_, err = EncodeAddress(Address{1, 2, sig}, "image", o)
		require.ErrorIs(t, err, fs.ErrInvalid)
		require.ErrorContains(t, err, "address item: vLLM "+o.Generation.Version+" does not know signatures; leave it zero")
		_, _, err = ParseAddress(&Item{Elems: []Elem{{Key: "address", Data: float64(1)}, {Key: "monotonic_id", Data: int64(1)}}}, o)
		corrupt(t, err, `address item, elem "address": got something else, want an integer from 0 to 2^64-1`)
		_, _, err = ParseAddress(&Item{Elems: []Elem{{Key: "address", Data: int64(1)}}}, o)
		corrupt(t, err, `address item, elem "monotonic_id": got something else, want an elem`)
	}
	_, err = EncodeAddress(Address{Address: 1}, "", Options{})
	require.ErrorIs(t, err, fs.ErrInvalid)
	require.ErrorContains(t, err, "address item: it has no signature, and vLLM "+pycompat.Newest().Version+" needs one")
	for _, elems := range [][]Elem{
		{{Key: "address", Data: int64(1)}, {Key: "monotonic_id", Data: int64(1)}},
		{{Key: "address", Data: int64(1)}, {Key: "signature", Data: []any{}}},
		{{Key: "address", Data: 1.5}, {Key: "monotonic_id", Data: int64(1)}, {Key: "signature", Data: []any{}}},
		{{Key: "address", Data: int64(1)}, {Key: "monotonic_id", Data: true}, {Key: "signature", Data: []any{}}},
		{{Key: "address", Data: int64(1)}, {Key: "monotonic_id", Data: int64(1)}, {Key: "signature", Data: int64(1)}},
	} {
		_, ok, err := ParseAddress(&Item{Elems: elems}, Options{})
		require.True(t, ok, "it claims to be an address")
		require.ErrorIs(t, err, ErrBadSignature)
		text := "Invalid SHM handle signature for cache key."
		if len(elems) == 2 {
			text = "Missing SHM handle signature for cache key."
		}
		corrupt(t, err, text)
	}
	// A list that is no signature must not pass for a missing one.
	list := func(n int, of any) []any { return slices.Repeat([]any{of}, n) }
	for _, l := range [][]any{
		{}, {int64(1)}, list(31, int64(1)), list(33, int64(1)), list(32, int64(0)), list(32, true), list(32, int64(256)), list(32, int64(-1)), list(32, 1.0), list(32, list(1, int64(1))),
	} {
		a, ok, err := ParseAddress(&Item{Elems: []Elem{{Key: "address", Data: int64(1)}, {Key: "monotonic_id", Data: int64(1)}, {Key: "signature", Data: l}}}, Options{})
		require.ErrorIs(t, err, ErrBadSignature)
		corrupt(t, err, "Invalid SHM handle signature for cache key.")
		require.True(t, ok, "it claims to be an address")
		require.Zero(t, a)
	}
}

func g9(t *testing.T, f [][]byte) {
	const main = "81a26d6d9183a5617564696f9181a2613082a46461746193a862666c6f6174313691cd03e801a56669656c6492a76261746368656481ab6b6565705f6f6e5f637075c2a5766964656f9181a2763082a4646174619493a4696e743891cd03e80293a4696e743891cd03e80393a4696e743891cd03e80493a4696e743891cd03e805a56669656c6492a4666c617483ab6b6565705f6f6e5f637075c2a6736c69636573929293010203930405069193c002c0a364696d00a5696d6167659182a2693082a46461746193a5696e74333291cd03e806a56669656c6492a673686172656482ab6b6565705f6f6e5f637075c2aa62617463685f73697a6504a2693182a46461746193a5696e74333291cd03e807a56669656c6492a4666c617483ab6b6565705f6f6e5f637075c2a6736c69636573929301020393040506a364696d02"
	require.Equal(t, main, hex.EncodeToString(f[0]))
	require.Len(t, bytes.Join(f, nil), 14319)
	require.Len(t, f, 8)
}
