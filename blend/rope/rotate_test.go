package rope

import (
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func randomFloats(r *rand.Rand, n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(r.NormFloat64())
	}
	return out
}

func scalings() []Scaling {
	return []Scaling{
		{}, {Kind: Linear, Factor: 3}, {Kind: NTK, Factor: 50}, {Kind: Dynamic, Factor: 2, OriginalPositions: 2048},
		{Kind: YaRN, Factor: 4, OriginalPositions: 4096},
		{Kind: Llama3, Factor: 8, OriginalPositions: 8192, LowFrequency: 1, HighFrequency: 4},
	}
}

// TestRotatingTwiceIsRotatingOnce is the first invariant of blending: rotate(p1), then by p2 - p1, is
// rotate(p2). With YaRN it fails if the factor of queries and keys is applied by each rotation.
func TestRotatingTwiceIsRotatingOnce(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	bounds := map[DType]float64{F32: 2e-6, F16: 4e-3, BF16: 3e-2}
	worst := map[DType]float64{}
	for _, s := range scalings() {
		for _, pairing := range []Pairing{NeoX, GPTJ} {
			for _, dims := range [][2]int{{128, 128}, {64, 64}, {80, 32}, {6, 6}, {10, 6}} {
				table, err := New(Config{
					HeadDim: dims[0], RotaryDim: dims[1], MaxPositions: 8192, Pairing: pairing, Scaling: s,
				})
				require.NoError(t, err)
				for _, p := range [][2]int{{0, 0}, {0, 100}, {7, 131000}, {5000, 12}, {1 << 20, 1<<20 + 1}} {
					key := randomFloats(r, 3*dims[0])
					for d, bound := range bounds {
						size := len(key) * d.Size()
						plain, first := make([]byte, size), make([]byte, size)
						second, once := make([]byte, size), make([]byte, size)
						d.Encode(plain, key)
						require.NoError(t, table.At(p[0]).Apply(first, plain, d))
						require.NoError(t, table.Shift(p[1]-p[0]).Apply(second, first, d))
						require.NoError(t, table.At(p[1]).Apply(once, plain, d))
						a, b := make([]float32, len(key)), make([]float32, len(key))
						d.Decode(a, second)
						d.Decode(b, once)
						for i := range a {
							e := math.Abs(float64(a[i]-b[i])) / max(1, math.Abs(float64(b[i])))
							worst[d] = max(worst[d], e)
							require.LessOrEqual(t, e, bound, "%+v pairing %d %v %v %s element %d",
								s, pairing, dims, p, d, i)
						}
					}
				}
			}
		}
	}
	t.Logf("largest error of keys around 1: %s %.1e, %s %.1e, %s %.1e",
		F32, worst[F32], F16, worst[F16], BF16, worst[BF16])
}

// TestFormsAgree: each loop has the bits of the plain one, rounded, for any number of pairs, in place, too.
func TestFormsAgree(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	t.Logf("vector instructions: %v", vectors)
	for _, pairing := range []Pairing{NeoX, GPTJ} {
		for rotary := 2; rotary <= 68; rotary += 2 {
			for _, dim := range []int{rotary, rotary + 3} {
				table, err := New(Config{HeadDim: dim, RotaryDim: rotary, Pairing: pairing})
				require.NoError(t, err)
				for _, d := range []DType{F32, F16, BF16} {
					rotation := table.Shift(r.IntN(1 << 16))
					src := make([]byte, 5*dim*d.Size())
					d.Encode(src, randomFloats(r, 5*dim))
					floats, want := make([]float32, 5*dim), make([]byte, len(src))
					d.Decode(floats, src)
					require.NoError(t, rotation.Floats(floats, floats))
					d.Encode(want, floats)
					got := make([]byte, len(src))
					require.NoError(t, rotation.Apply(got, src, d))
					require.Equal(t, want, got, "%s pairing %d, %d of %d", d, pairing, rotary, dim)
					require.NoError(t, rotation.Apply(src, src, d))
					require.Equal(t, want, src)
				}
			}
		}
	}
}

func TestInfinityAndNaNStayWhatTheyAre(t *testing.T) {
	table, err := New(Config{HeadDim: 16})
	require.NoError(t, err)
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, d := range []DType{F32, F16, BF16} {
		key := make([]float32, 16)
		key[1], key[2] = inf, nan
		b := make([]byte, 16*d.Size())
		d.Encode(b, key)
		require.NoError(t, table.Shift(3).Apply(b, b, d))
		d.Decode(key, b)
		for i, x := range key {
			switch i % 8 {
			case 1:
				require.True(t, math.IsInf(float64(x), 0), "%s %v", d, key)
			case 2:
				require.True(t, math.IsNaN(float64(x)), "%s %v", d, key)
			default:
				require.Zero(t, x)
			}
		}
	}
}

func TestNoShiftCopies(t *testing.T) {
	table, err := New(Config{HeadDim: 16, Scaling: Scaling{Kind: YaRN, Factor: 4, OriginalPositions: 64}})
	require.NoError(t, err)
	src := make([]byte, 64)
	F32.Encode(src, []float32{1: 1e-45, 2: float32(math.Inf(-1)), 15: 7})
	dst := make([]byte, 64)
	require.NoError(t, table.Shift(0).Apply(dst, src, F32))
	require.Equal(t, src, dst, "bit for bit")
	require.NoError(t, table.At(0).Apply(dst, src, F32))
	require.NotEqual(t, src, dst, "keys without a position get the factor, at position 0, too")
}

func TestWhatAreNoHeadsIsRefused(t *testing.T) {
	table, err := New(Config{HeadDim: 16})
	require.NoError(t, err)
	r := table.Shift(1)
	require.ErrorIs(t, r.Apply(make([]byte, 62), make([]byte, 62), F32), fs.ErrInvalid)
	require.ErrorIs(t, r.Apply(make([]byte, 64), make([]byte, 128), F32), fs.ErrInvalid)
	require.ErrorIs(t, r.Apply(make([]byte, 64), make([]byte, 64), DType(9)), fs.ErrInvalid)
	require.ErrorIs(t, r.Floats(make([]float32, 8), make([]float32, 8)), fs.ErrInvalid)
	require.NoError(t, r.Apply(nil, nil, F32))
	require.ErrorIs(t, Rotation{}.Apply(nil, nil, F32), fs.ErrInvalid)
	require.ErrorIs(t, Rotation{}.Floats(nil, nil), fs.ErrInvalid, "a rotation that no table made")
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(
		`{"head_dim": 64, "rope_scaling": {"type": "yarn", "factor": 2, "original_max_position_embeddings": 8}}`))
	f.Add([]byte(`{"hidden_size": 64, "num_attention_heads": 2, "partial_rotary_factor": 0.5}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := ParseConfig(text)
		if err != nil {
			require.ErrorIs(t, err, fs.ErrInvalid)
			return
		}
		table, err := New(c)
		require.NoError(t, err)
		head := make([]float32, c.HeadDim)
		require.NoError(t, table.At(1).Floats(head, head))
		for i, x := range table.frequencies {
			require.False(t, math.IsNaN(x) || math.IsInf(x, 0), "frequency %d is %v: %s", i, x, text)
		}
	})
}

func BenchmarkApply(b *testing.B) {
	for _, d := range []DType{F32, F16, BF16} {
		for _, pairing := range []Pairing{NeoX, GPTJ} {
			b.Run(fmt.Sprintf("%s/pairing=%d", d, pairing), func(b *testing.B) {
				table, err := New(Config{HeadDim: 128, Pairing: pairing})
				require.NoError(b, err)
				src := make([]byte, 256*8*128*d.Size()) // a chunk of 256 tokens in a layer with 8 heads
				d.Encode(src, randomFloats(rand.New(rand.NewPCG(1, 1)), 256*8*128))
				dst := make([]byte, len(src))
				rotation := table.Shift(1000)
				b.SetBytes(int64(len(src)))
				for b.Loop() {
					if err := rotation.Apply(dst, src, d); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
	b.Run("copy", func(b *testing.B) {
		src := make([]byte, 256*8*128*2)
		dst := make([]byte, len(src))
		b.SetBytes(int64(len(src)))
		for b.Loop() {
			copy(dst, src)
		}
	})
}
