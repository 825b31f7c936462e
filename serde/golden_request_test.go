package serde

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/ringcache/ringcache/pycompat"
	"github.com/stretchr/testify/require"
)

func ptr[T any](v T) *T { return &v }

// goldenFeatures are the four features of the golden generator.
func goldenFeatures(form pycompat.ItemForm) (fs []Feature, it, big *Item) {
	modality := ""
	if form != pycompat.ItemMap {
		modality = "image"
	}
	f32 := []byte{0, 0, 0, 0, 0, 0, 0x80, 0x3f, 0, 0, 0, 0x40, 0, 0, 0x40, 0x40, 0, 0, 0x80, 0x40, 0, 0, 0xa0, 0x40}
	it = &Item{Modality: modality, Elems: []Elem{{Key: "pixel_values", Data: &Tensor{DTypeFloat32, []int{2, 3}, f32}}}}
	big = &Item{Modality: modality, Elems: []Elem{{Key: "a", Data: &Tensor{DTypeUint8, []int{300}, make([]byte, 300)}}}}
	ones := []byte(strings.Repeat("\x01", 300))
	h64 := strings.Repeat("h", 64)
	return []Feature{
		{Modality: "image", Identifier: "abc", Offset: 2, Length: 336, MMHash: ptr("abc")},
		{Data: it, Modality: "image", Identifier: "lora1:abc", Length: 4, MMHash: ptr("abc"), IsEmbed: &Tensor{DTypeBool, []int{4}, []byte{1, 0, 1, 1}}},
		{Data: it, Modality: "video", Identifier: "v", Offset: 70000, Length: 1},
		{Data: big, Modality: "audio", Identifier: h64, Offset: 1, Length: 300, MMHash: &h64, IsEmbed: &Tensor{DTypeBool, []int{300}, ones}},
	}, it, big
}

func equalFeature(t testing.TB, want, got Feature, hash bool) {
	t.Helper()
	if want.Data == nil {
		require.Nil(t, got.Data)
	} else {
		equalItem(t, want.Data, got.Data)
	}
	if want.IsEmbed == nil {
		require.Nil(t, got.IsEmbed)
	} else {
		require.True(t, equalTensor(want.IsEmbed, got.IsEmbed))
	}
	if !hash {
		want.MMHash = nil
	}
	want.Data, got.Data, want.IsEmbed, got.IsEmbed = nil, nil, nil, nil
	require.Equal(t, want, got)
}

func TestGoldenFeatures(t *testing.T) {
	for _, f := range golden(t, "requests") {
		f.each(t, func(t *testing.T, o Options) {
			fs, it, big := goldenFeatures(o.Generation.ItemForm)
			byName := map[string]*Feature{"nil": &fs[0], "item": &fs[1], "nohash": &fs[2], "bigmask": &fs[3]}
			checked, skipped := 0, map[string]int{}
			compare := func(r gEncoded, name string, got Frames, err error) {
				t.Helper()
				require.NoError(t, err, name)
				require.Len(t, got, len(r.Frames), name)
				for i, want := range r.Frames {
					want.equal(t, got[i], name)
				}
				checked++
			}
			type row struct {
				Name string
				gEncoded
			}
			for _, r := range rows[row](t, f, "features") {
				if r.Name == "list" {
					got, err := EncodeFeatures(fs, o)
					compare(r.gEncoded, r.Name, got, err)
					back, err := DecodeFeatures(got, o)
					require.NoError(t, err)
					require.Len(t, back, len(fs))
					for i := range fs {
						equalFeature(t, fs[i], back[i], o.Generation.FeatureHash)
					}
					continue
				}
				got, err := EncodeFeature(byName[r.Name], o)
				compare(r.gEncoded, r.Name, got, err)
				back, err := DecodeFeature(got, o)
				require.NoError(t, err)
				equalFeature(t, *byName[r.Name], *back, o.Generation.FeatureHash)
			}
			for _, r := range rows[row](t, f, "containers") {
				var k KwargsItems
				switch r.Name {
				case "items":
					k = KwargsItems{{"image", []*Item{it, it}}, {"audio", []*Item{big}}}
				case "items_in_map":
					k = KwargsItems{{"mm", []*Item{it}}}
				default:
					skipped["are no items (handshake)"]++
					continue
				}
				got, err := EncodeItems(k, o)
				compare(r.gEncoded, r.Name, got, err)
				back, err := DecodeItems(got, o)
				require.NoError(t, err)
				require.Len(t, back, len(k))
				for i := range k {
					require.Equal(t, k[i].Modality, back[i].Modality)
					require.Len(t, back[i].Items, len(k[i].Items))
					for j := range k[i].Items {
						equalItem(t, k[i].Items[j], back[i].Items[j])
					}
				}
			}
			report(t, f, checked, skipped)
		})
	}
}

func TestGoldenHandleParse(t *testing.T) {
	one := func(d Data) Elem { return Elem{Key: keyAddress, Data: d} }
	id := func(n int64) Elem { return Elem{Key: keyID, Data: Int(n)} }
	sig := Elem{Key: keySignature, Data: List{Int(3)}}
	tensor := func(n int) *Tensor { return &Tensor{DTypeFloat32, []int{n}, make([]byte, 4*n)} }
	forms := map[string][]Elem{
		"none":        {{Key: "x", Data: Int(1)}},
		"no_id":       {one(Int(1))},
		"no_sig":      {one(Int(1)), id(1)},
		"ok":          {one(Int(1)), id(2), sig},
		"float_addr":  {one(Float(1)), id(2), sig},
		"bool_addr":   {one(Bool(true)), id(2), sig},
		"neg":         {one(Int(-1)), id(2), sig},
		"id2^32":      {one(Int(0)), id(1 << 32), sig},
		"tensor_addr": {one(tensor(1)), id(2), sig},
		"sig_tensor":  {one(Int(1)), id(2), {Key: keySignature, Data: tensor(32)}},
	}
	for _, f := range golden(t, "signatures") {
		f.each(t, func(t *testing.T, o Options) {
			list := rows[struct {
				Form string
				R    json.RawMessage
			}](t, f, "handle_parse")
			checked, skipped := 0, map[string]int{}
			for _, r := range list {
				if r.Form == "2^64" {
					skipped["has no wire form (2^64 as an integer)"]++
					continue
				}
				checked++
				elems, ok := forms[r.Form]
				require.True(t, ok, r.Form)
				a, ok, err := ParseAddress(&Item{Elems: elems}, o)
				switch {
				case string(r.R) == "null":
					require.NoError(t, err)
					require.False(t, ok)
				case r.R[0] == '[':
					require.NoError(t, err, r.Form)
					require.True(t, ok)
					require.Equal(t, Address{1, 2, []byte{3}}, a)
					require.JSONEq(t, `[1,2,[3]]`, string(r.R))
				default:
					var e struct{ Err, Msg string }
					require.NoError(t, json.Unmarshal(r.R, &e))
					require.EqualError(t, err, e.Msg, r.Form)
					require.ErrorIs(t, err, ErrCorrupt)
					require.True(t, ok)
				}
			}
			report(t, f, checked, skipped)
		})
	}
}
