package pickle

import (
	"bytes"
	"fmt"
	"math/big"
	"testing"

	ogorek "github.com/kisielk/og-rek"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/serde"
)

// requireMeans asserts that og-rek decodes pickle to the tuple that m stands for.
func requireMeans(t require.TestingT, m serde.Metadata, pickle []byte) {
	v, err := ogorek.NewDecoder(bytes.NewReader(pickle)).Decode()
	require.NoError(t, err)
	tuple, ok := v.(ogorek.Tuple)
	require.True(t, ok, "a tuple, not %T", v)
	require.Len(t, tuple, 3)
	require.Equal(t, m.Type, fmt.Sprint(tuple[0]))
	requireInt(t, m.NBytes, tuple[1])
	if m.Lens == nil {
		require.Equal(t, ogorek.None{}, tuple[2])
		return
	}
	lens, ok := tuple[2].([]any)
	require.True(t, ok, "a list, not %T", tuple[2])
	require.Len(t, lens, len(m.Lens))
	for i := range lens {
		requireInt(t, m.Lens[i], lens[i])
	}
}

func requireInt(t require.TestingT, want int64, v any) {
	if b, ok := v.(*big.Int); ok {
		require.True(t, b.IsInt64())
		v = b.Int64()
	}
	require.Equal(t, want, v)
}

// The integers at which a pickle changes opcodes.
var edges = []int64{0, 1, 127, 128, 255, 256, 65535, 65536, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 39, 1 << 40, 1<<47 - 1, 1 << 62, 1<<63 - 1}

func TestMetadataMeansTheSameToOgorek(t *testing.T) {
	for _, n := range edges {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			for _, lens := range [][]int64{nil, {}, {n}, {n, 1, n}} {
				m := serde.Metadata{Type: "MultiModalKwargsItem", NBytes: n, Lens: lens}
				requireMeans(t, m, serde.AppendMetadata(nil, m))
			}
		})
	}
	// Lists go in batches of 1000, and the pickle in frames of 64 KiB.
	for _, count := range []int{2, 999, 1000, 1001, 2000, 2001, 13000, 21800, 21900, 33000, 65600} {
		for _, length := range []int64{7, 256, 70000} {
			t.Run(fmt.Sprintf("%d of %d", count, length), func(t *testing.T) {
				m := serde.Metadata{Type: "MultiModalKwargsItem", Lens: make([]int64, count)}
				for i := range m.Lens {
					m.Lens[i] = length
					m.NBytes += length
				}
				requireMeans(t, m, serde.AppendMetadata(nil, m))
			})
		}
	}
	t.Run("random", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			length := rapid.OneOf(rapid.SampledFrom(edges), rapid.Int64Min(0))
			m := serde.Metadata{Type: rapid.StringN(0, 300, 255*4).Draw(t, "type"), NBytes: length.Draw(t, "bytes")}
			if rapid.Bool().Draw(t, "list") {
				m.Lens = rapid.SliceOfN(length, 0, 2500).Draw(t, "lengths")
			}
			requireMeans(t, m, serde.AppendMetadata(nil, m))
		})
	})
}

// Whatever serde accepts means the same to a general decoder.
func FuzzMetadataAgainstOgorek(f *testing.F) {
	f.Add(serde.AppendMetadata(nil, serde.Metadata{Type: "MultiModalKwargsItem", NBytes: 560, Lens: []int64{48, 512}}))
	f.Add(serde.AppendMetadata(nil, serde.Metadata{Type: "bytes", NBytes: 21}))
	f.Add(serde.AppendMetadata(nil, serde.Metadata{Type: "Tensor", NBytes: 1 << 33, Lens: []int64{1 << 33}}))
	f.Add([]byte("\x80\x02(\x8c\x06TensorJ0\x02\x00\x00](K0J\x00\x02\x00\x00et."))
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, n, err := serde.ParseMetadata(b); err == nil {
			requireMeans(t, m, b[:n])
		}
	})
}
