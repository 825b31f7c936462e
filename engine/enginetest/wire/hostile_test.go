package wire

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/alloctest"
	"github.com/ringcache/ringcache/internal/codec"
	"github.com/ringcache/ringcache/internal/goldentest"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/serde/enginecore"
)

// featureReads reads a feature, and a list of them, with the guard and without.
func featureReads(c *Codec) map[string]func([][]byte) error {
	feature := func(d *codec.Decoder) (enginecore.Feature, error) { return readFeature(&reader{d, c}, "feature") }
	list := func(d *codec.Decoder) ([]enginecore.Feature, error) { return readFeatures(&reader{d, c}, "features") }
	return map[string]func([][]byte) error{
		"feature":         func(f [][]byte) error { _, err := codec.Decode(f, feature); return err },
		"list":            func(f [][]byte) error { _, err := codec.Decode(f, list); return err },
		"changed feature": func(f [][]byte) error { _, err := codec.DecodeUnguarded(f, feature); return err },
		"changed list":    func(f [][]byte) error { _, err := codec.DecodeUnguarded(f, list); return err },
	}
}

// TestFeatureBombs: a feature allocates nothing for what is only declared, also inside
// the item that it contains.
func TestFeatureBombs(t *testing.T) {
	item := "\x84\xa4data\x81\xa1x\x82\xa4data"
	for _, head := range []string{
		"", "\x91", "\x84", "\x84\xa4data", "\x84\xa4data\x81", "\x91" + item, item, item + "\x93\xa5uint8", item + "\x93\xa5uint8\x91\x01", item + "\xc0\xa5field\x92\xa4flat\x81\xa6slices",
		"\x84\xabmm_position", "\x84\xabmm_position\x83\xa8is_embed", "\x84\xabmm_position\x83\xa8is_embed\x93\xa4bool", "\x84\xa7unknown", "\x84\xa8modality",
	} {
		for _, bomb := range []string{
			"\xdd\x02\x00\x00\x00", "\xdf\x02\x00\x00\x00", "\xdb\x02\x00\x00\x00", "\xc6\x02\x00\x00\x00", "\xc9\x02\x00\x00\x00\x03",
			"\xdd\xff\xff\xff\xff", "\xdf\xff\xff\xff\xff", "\xdb\xff\xff\xff\xff", "\xc6\xff\xff\xff\xff", "\xc9\xff\xff\xff\xff\x03",
		} {
			for _, g := range goldentest.ItemForms() {
				c := newCodec(t, g.Version)
				for name, read := range featureReads(c) {
					var err error
					require.Less(t, alloctest.Bytes(func() { err = read([][]byte{[]byte(head + bomb)}) }), uint64(32<<10), "%q %q as %s", head, bomb, name)
					require.Error(t, err)
					typed(t, err)
				}
			}
		}
	}
}

func newCodec(t testing.TB, version string) *Codec {
	t.Helper()
	g, err := pycompat.Lookup(version)
	require.NoError(t, err)
	c, err := New(serde.Options{Generation: g})
	require.NoError(t, err)
	return c
}

// TestDamagedFeatures: cut at every byte they are refused, and with a bit turned over
// they are read as something else or refused.
func TestDamagedFeatures(t *testing.T) {
	for _, g := range goldentest.ItemForms() {
		c := newCodec(t, g.Version)
		frontend, err := enginecore.New(enginecore.Options{Generation: c.gen})
		require.NoError(t, err)
		params, err := frontend.ParseSampling(nil)
		require.NoError(t, err)
		tensor := func(n int) *serde.Tensor {
			return &serde.Tensor{DType: "uint8", Shape: []int{n}, Data: make([]byte, n)}
		}
		m, err := frontend.EncodeRequest(&enginecore.Request{PromptTokenIDs: []uint32{1}, Params: params, Features: []enginecore.Feature{{
			Data:     &serde.Item{Modality: "image", Elems: []serde.Elem{{Key: "a", Data: tensor(3)}, {Key: "b", Data: []any{tensor(300), int64(5)}, Field: serde.FlatFromSizes(2)}}},
			Modality: "image", Identifier: "i", Length: 2, IsEmbed: &serde.Tensor{DType: "bool", Shape: []int{2}, Data: []byte{1, 0}},
		}}})
		require.NoError(t, err)
		whole := m.Frames()[1:]
		at := bytes.Index(whole[0], []byte("\xa4data"))
		require.Positive(t, at)
		at -= 2 // the headers of the feature and of the list
		_, end, err := codec.DecodePart(append([][]byte{}, whole...), at, func(d *codec.Decoder) ([]enginecore.Feature, error) { return readFeatures(&reader{d, c}, "features") })
		require.NoError(t, err)
		doc := bytes.Clone(whole[0][at:end])
		read := featureReads(c)
		frames := func(doc []byte) [][]byte { return append([][]byte{doc}, whole[1:]...) }
		require.NoError(t, read["list"](frames(doc)))
		for n := range doc {
			for _, name := range []string{"list", "changed list"} {
				err := read[name](frames(doc[:n:n]))
				require.ErrorIs(t, err, serde.ErrCorrupt, "%s cut to %d bytes", name, n)
			}
		}
		for bit := range 8 * len(doc) {
			doc[bit/8] ^= 1 << (bit % 8)
			for _, name := range []string{"list", "changed list"} {
				typed(t, read[name](frames(doc)))
			}
			doc[bit/8] ^= 1 << (bit % 8)
		}
	}
}
