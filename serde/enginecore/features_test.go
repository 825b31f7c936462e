package enginecore_test

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/goldentest"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/serde/enginecore"
)

// goldenFeatures are the four features of the golden generator.
func goldenFeatures(form pycompat.ItemForm) []enginecore.Feature {
	modality := ""
	if form != pycompat.ItemMap {
		modality = "image"
	}
	f32 := []byte{0, 0, 0, 0, 0, 0, 0x80, 0x3f, 0, 0, 0, 0x40, 0, 0, 0x40, 0x40, 0, 0, 0x80, 0x40, 0, 0, 0xa0, 0x40}
	it := &serde.Item{Modality: modality, Elems: []serde.Elem{{Key: "pixel_values", Data: &serde.Tensor{DType: "float32", Shape: []int{2, 3}, Data: f32}}}}
	big := &serde.Item{Modality: modality, Elems: []serde.Elem{{Key: "a", Data: &serde.Tensor{DType: "uint8", Shape: []int{300}, Data: make([]byte, 300)}}}}
	ones := []byte(strings.Repeat("\x01", 300))
	h64 := strings.Repeat("h", 64)
	return []enginecore.Feature{
		{Modality: "image", Identifier: "abc", Offset: 2, Length: 336, MMHash: ptr("abc")},
		{Data: it, Modality: "image", Identifier: "lora1:abc", Length: 4, MMHash: ptr("abc"), IsEmbed: &serde.Tensor{DType: "bool", Shape: []int{4}, Data: []byte{1, 0, 1, 1}}},
		{Data: it, Modality: "video", Identifier: "v", Offset: 70000, Length: 1},
		{Data: big, Modality: "audio", Identifier: h64, Offset: 1, Length: 300, MMHash: &h64, IsEmbed: &serde.Tensor{DType: "bool", Shape: []int{300}, Data: ones}},
	}
}

// decodeFeatures reads the list that is the mm_features of a request.
func (p pair) decodeFeatures(list [][]byte) ([]enginecore.Feature, error) {
	doc := []byte{0xdc, 0, byte(len(p.gen.RequestFields))}
	for _, name := range p.gen.RequestFields {
		switch name {
		case "request_id":
			doc = append(doc, "\xa1r"...)
		case "mm_features":
			doc = append(doc, list[0]...)
		case "arrival_time", "client_index", "current_wave", "priority":
			doc = append(doc, 0)
		case "resumable", "abort_immediately":
			doc = append(doc, 0xc2)
		default:
			doc = append(doc, 0xc0)
		}
	}
	r, err := p.request(append([][]byte{doc}, list[1:]...)...)
	if err != nil {
		return nil, err
	}
	return r.Features, nil
}

// decodeFeature is decodeFeatures for a list of one.
func (p pair) decodeFeature(frames [][]byte) (*enginecore.Feature, error) {
	fs, err := p.decodeFeatures(append([][]byte{append([]byte{0x91}, frames[0]...)}, frames[1:]...))
	if err != nil {
		return nil, err
	}
	return &fs[0], nil
}

func equalFeature(t require.TestingT, want, got enginecore.Feature, hash bool) {
	require.Equal(t, want.Data == nil, got.Data == nil)
	if want.Data != nil {
		equalItem(t, want.Data, got.Data)
	}
	equalTensor(t, want.IsEmbed, got.IsEmbed)
	if !hash {
		want.MMHash = nil
	}
	want.Data, got.Data, want.IsEmbed, got.IsEmbed = nil, nil, nil, nil
	require.Equal(t, want, got)
}

func TestGoldenFeatures(t *testing.T) {
	for _, f := range goldentest.Files(t, "requests") {
		f.Each(t, func(t *testing.T, g *pycompat.Generation) {
			p := newPair(t, g, 0)
			fs := goldenFeatures(g.ItemForm)
			byName := map[string]*enginecore.Feature{"nil": &fs[0], "item": &fs[1], "nohash": &fs[2], "bigmask": &fs[3]}
			checked := 0
			for _, r := range goldentest.Rows[goldentest.Frames](t, f, "features") {
				checked++
				if r.Name == "list" {
					got, err := p.EncodeFeatures(fs)
					require.NoError(t, err)
					r.Equal(t, got)
					back, err := p.decodeFeatures(got)
					require.NoError(t, err)
					require.Len(t, back, len(fs))
					for i := range fs {
						equalFeature(t, fs[i], back[i], g.FeatureHash)
					}
					continue
				}
				require.NotNil(t, byName[r.Name], r.Name)
				got, err := p.EncodeFeature(byName[r.Name])
				require.NoError(t, err)
				r.Equal(t, got)
				back, err := p.decodeFeature(got)
				require.NoError(t, err)
				equalFeature(t, *byName[r.Name], *back, g.FeatureHash)
			}
			f.Report(t, checked, nil)
		})
	}
}

func TestVectorFeature(t *testing.T) {
	h := "abc"
	f, err := newest(t).EncodeFeature(&enginecore.Feature{Modality: "image", Identifier: h, Offset: 2, Length: 336, MMHash: &h})
	require.NoError(t, err)
	require.Equal(t, "85a464617461c0a86d6f64616c697479a5696d616765aa6964656e746966696572a3616263ab6d6d5f706f736974696f6e83a66f666673657402a66c656e677468cd0150a869735f656d626564c0a76d6d5f68617368a3616263", hex.EncodeToString(f[0]))
}

// TestFeatureAddress: an address is encoded as the item that it stands for is.
func TestFeatureAddress(t *testing.T) {
	for _, g := range pycompat.Releases() {
		t.Run(g.Version, func(t *testing.T) {
			p := newPair(t, g, 0)
			a := serde.Address{Address: 1 << 40, ID: 77}
			if g.Signed {
				a.Signature[3] = 9
			}
			f := enginecore.Feature{Modality: "audio", Identifier: "x", Offset: 3, Length: 2}
			f.Data = serde.NewAddressItem(a, f.Modality)
			want, err := p.EncodeFeature(&f)
			require.NoError(t, err)
			f.Data, f.Address = nil, &a
			got, err := p.EncodeFeature(&f)
			require.NoError(t, err)
			require.Equal(t, want, got)
			a.Signature[3] ^= 9 // which leaves none, or makes one
			_, err = p.EncodeFeature(&f)
			invalid(t, err, "address item")
		})
	}
}

func TestEncodeFeatureRefuses(t *testing.T) {
	hole := &serde.Item{Elems: []serde.Elem{{Key: "x", Data: &serde.Tensor{DType: "uint8", Shape: []int{3}}}}}
	for text, f := range map[string]*enginecore.Feature{
		`tensor of elem "x": it has no Data; only NewPlan takes layouts`: {Data: hole},
		"feature: IsEmbed is a tensor of uint8, must be bool":            {IsEmbed: &serde.Tensor{DType: "uint8", Shape: []int{3}, Data: make([]byte, 3)}},
		"feature: its range is -1+0":                                     {Offset: -1},
		"feature: it has both Data and an Address; give one of them":     {Data: hole, Address: &serde.Address{}},
	} {
		_, err := newest(t).EncodeFeature(f)
		invalid(t, err, text)
	}
}

// Python's dataclass decoding ignores names it does not know.
func TestFeatureUnknownAndMissing(t *testing.T) {
	p := newest(t)
	base := "\xa4data\xc0\xa8modality\xa1i\xaaidentifier\xa1x"
	pos := "\xabmm_position\x83\xa6offset\x01\xa6length\x02\xa5later\x81\x01\x92\xc0\xc4\x01z"
	f, err := p.decodeFeature([][]byte{[]byte("\x85" + base + pos + "\xa3new\x93\x01\x80\xd4\x05z")})
	require.NoError(t, err)
	require.Equal(t, &enginecore.Feature{Modality: "i", Identifier: "x", Offset: 1, Length: 2}, f)
	for name, c := range map[string]struct{ doc, text string }{
		"no position":  {"\x83" + base, `got none, want the key "mm_position"`},
		"twice":        {"\x85" + base + pos + "\xa4data\xc0", `got "data" twice, want each key once`},
		"no length":    {"\x84" + base + "\xabmm_position\x81\xa6offset\x01", `got none, want the key "length"`},
		"negative":     {"\x84" + base + "\xabmm_position\x82\xa6offset\xff\xa6length\x01", "got -1, want at least 0"},
		"is_embed":     {"\x84" + base + "\xabmm_position\x83\xa6offset\x01\xa6length\x01\xa8is_embed\x93\xa5uint8\x91\x01\xd4\x031", "got one of uint8, want a bool tensor"},
		"nil modality": {"\x84\xa4data\xc0\xa8modality\xc0\xaaidentifier\xa1x" + pos, "got nil, want a string"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := p.decodeFeature([][]byte{[]byte(c.doc)})
			corrupt(t, err, c.text)
		})
	}
}
