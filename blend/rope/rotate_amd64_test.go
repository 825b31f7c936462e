package rope

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzVectorsAreTheLoops compares vector instructions with the loops in Go: any bits, any numbers of heads
// and pairs, addresses without an alignment, to another place and in place. What lies around the heads stays.
func FuzzVectorsAreTheLoops(f *testing.F) {
	if !vectors {
		f.Skip("no vector instructions")
	}
	for seed := range uint64(40) {
		f.Add(seed, byte(seed), byte(seed/3), seed%2 == 0)
	}
	f.Fuzz(func(t *testing.T, seed uint64, pairs, rest byte, special bool) {
		r := rand.New(rand.NewPCG(seed, 9))
		rotary := 2 * (1 + int(pairs)%80)
		dim, heads := rotary+int(rest)%20, r.IntN(5)
		for _, pairing := range []Pairing{NeoX, GPTJ} {
			table, err := New(Config{HeadDim: dim, RotaryDim: rotary, Pairing: pairing})
			require.NoError(t, err)
			rotation := table.Shift(1 + r.IntN(1<<20) - 1<<19)
			for _, d := range []DType{F32, F16, BF16} {
				size, before := heads*dim*d.Size(), r.IntN(33)
				src, around := make([]byte, before+size), make([]byte, before+size+64)
				for i := range src {
					src[i] = byte(r.Uint32())
				}
				if special {
					putSpecial(r, src[before:], d)
				}
				for i := range around {
					around[i] = byte(r.Uint32())
				}
				dst := append([]byte(nil), around...)
				require.NoError(t, rotation.Apply(dst[before:before+size], src[before:], d))
				require.Equal(t, around[:before], dst[:before])
				require.Equal(t, around[before+size:], dst[before+size:])
				want := make([]byte, size)
				copy(want, src[before:]) // with what is not rotated
				for at := 0; at < size; at += dim * d.Size() {
					rotation.head(want[at:at+dim*d.Size()], src[before+at:before+at+dim*d.Size()], d)
				}
				requireSame(t, want, dst[before:before+size], d)
				require.NoError(t, rotation.Apply(src[before:], src[before:], d))
				requireSame(t, want, src[before:], d)
			}
		}
	})
}

// putSpecial puts numbers at the borders of types to random places.
func putSpecial(r *rand.Rand, b []byte, d DType) {
	numbers := []float32{
		0, float32(math.Copysign(0, -1)), float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), 65504,
		65520, 0x1p-24, 0x1p-25, 0x1p-14, math.MaxFloat32, -math.MaxFloat32, math.SmallestNonzeroFloat32, 1,
	}
	for at := 0; at < len(b); at += d.Size() {
		if r.IntN(3) > 0 {
			d.Encode(b[at:at+d.Size()], numbers[r.IntN(len(numbers)):][:1])
		}
	}
}

// requireSame compares bits, but of a NaN only that it is one: which of two a sum keeps depends on the order
// of its operands.
func requireSame(t *testing.T, want, got []byte, d DType) {
	t.Helper()
	a, b := make([]float32, len(want)/d.Size()), make([]float32, len(got)/d.Size())
	d.Decode(a, want)
	d.Decode(b, got)
	for i := range a {
		if a[i] != a[i] && b[i] != b[i] {
			continue
		}
		require.Equal(t, math.Float32bits(a[i]), math.Float32bits(b[i]), "%s element %d", d, i)
	}
}
