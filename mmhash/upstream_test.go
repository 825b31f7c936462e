package mmhash

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/pycompat"
)

// The scenarios of vLLM's tests/multimodal/test_hasher.py, in its order.

func hexOf(t testing.TB, o Options, args ...Entry) string {
	t.Helper()
	h, err := hexOrError(o, args...)
	require.NoError(t, err)
	return h
}

// hexOrError makes a Hasher for a single hash.
func hexOrError(o Options, args ...Entry) (string, error) {
	h, err := NewHasher(o)
	if err != nil {
		return "", err
	}
	return h.Hex(args...)
}

// differ requires that no two of the values have the same hash.
func differ(t testing.TB, values ...any) {
	t.Helper()
	seen := map[string]int{}
	for i, v := range values {
		h := hexOf(t, Options{}, arg("x", v))
		require.NotContains(t, seen, h, "values %d and %d", seen[h], i)
		seen[h] = i
	}
}

func arg(name string, v any) Entry { return Entry{name, v} }

func gray(w, h int) *Image {
	return &Image{Mode: "L", Width: w, Height: h, Pixels: bytes.Repeat([]byte{10, 20, 30}, w*h)[:w*h]}
}

func TestUpstreamAlgorithms(t *testing.T) {
	old, err := pycompat.Lookup("0.30.0") // its stream of value="test" is simply "valuetest"
	require.NoError(t, err)
	s256, s512 := sha256.Sum256([]byte("valuetest")), sha512.Sum512([]byte("valuetest"))
	require.Equal(t, hex.EncodeToString(s256[:]), hexOf(t, Options{old, "sha256"}, arg("value", "test")))
	require.Equal(t, hex.EncodeToString(s512[:]), hexOf(t, Options{old, "sha512"}, arg("value", "test")))
	require.Len(t, hexOf(t, Options{}, arg("value", "test")), 64)
	require.Len(t, hexOf(t, Options{Algorithm: "sha512"}, arg("value", "test")), 128)
}

func TestUpstreamScalarAndVectorDiffer(t *testing.T) {
	one := []byte{0, 0, 128, 63}
	differ(t, &Array{"<f4", nil, one}, &Array{"<f4", []int{1}, one})
	differ(t, &Tensor{"float32", nil, one}, &Tensor{"float32", []int{1}, one})
}

func TestUpstreamArgumentOrderDoesNotMatter(t *testing.T) {
	a, b := arg("a", int64(1)), arg("b", "x")
	require.Equal(t, hexOf(t, Options{}, a, b), hexOf(t, Options{}, b, a))
	old, err := pycompat.Lookup("0.15.1")
	require.NoError(t, err)
	require.NotEqual(t, hexOf(t, Options{Generation: old}, a, b), hexOf(t, Options{Generation: old}, b, a))
}

func TestUpstreamImageModesDiffer(t *testing.T) {
	differ(t, &Image{Mode: "1", Width: 2, Height: 2, Pixels: make([]byte, 4)}, &Image{Mode: "L", Width: 2, Height: 2, Pixels: make([]byte, 4)})
	differ(t, &Image{Mode: "RGBA", Width: 2, Height: 2, Pixels: make([]byte, 16)}, &Image{Mode: "CMYK", Width: 2, Height: 2, Pixels: make([]byte, 16)})
}

func TestUpstreamPalettesDiffer(t *testing.T) {
	with := func(p *Palette) *Image {
		return &Image{Mode: "P", Width: 2, Height: 1, Pixels: []byte{0, 1}, Palette: p}
	}
	differ(t, with(nil), with(&Palette{"bytes", []byte{1, 2, 3}, ""}), with(&Palette{"bytes", []byte{3, 2, 1}, ""}),
		with(&Palette{"list", []byte{1, 2, 3}, ""}), with(&Palette{"bytearray", []byte{1, 2, 3}, ""}),
		with(&Palette{"bytes", []byte{1, 2, 3}, "RGB"}))
}

func TestUpstreamTransposedImageDiffers(t *testing.T) {
	differ(t, gray(2, 3), gray(3, 2))
}

func TestUpstreamShapesDiffer(t *testing.T) {
	data := make([]byte, 24)
	differ(t, &Tensor{"float32", []int{6}, data}, &Tensor{"float32", []int{2, 3}, data}, &Tensor{"float32", []int{3, 2}, data})
	differ(t, &Tensor{"bfloat16", []int{12}, data}, &Tensor{"bfloat16", []int{4, 3}, data}, &Tensor{"bfloat16", []int{3, 4}, data})
	differ(t, &Array{"<f4", []int{6}, data}, &Array{"<f4", []int{2, 3}, data}, &Array{"<f4", []int{3, 2}, data})
}

func TestUpstreamVideosWithOtherFrameCountsDiffer(t *testing.T) {
	data := make([]byte, 24)
	long := make([]byte, 25)
	a, b := &Array{"|u1", []int{1, 2, 4, 3}, data}, &Array{"|u1", []int{2, 2, 2, 3}, data}
	differ(t, &EncodedVideo{Data: long, Frames: a}, &EncodedVideo{Data: long, Frames: b})
	// Where the file is hashed, only the metadata beside it tell.
	short := []byte("mp4")
	require.Equal(t, hexOf(t, Options{}, arg("x", &EncodedVideo{Data: short, Frames: a})), hexOf(t, Options{}, arg("x", &EncodedVideo{Data: short, Frames: b})))
	differ(t, []any{&EncodedVideo{Data: short, Frames: a}, []Entry{{"frames", int64(1)}}}, []any{&EncodedVideo{Data: short, Frames: b}, []Entry{{"frames", int64(2)}}})
}

func TestUpstreamEXIFID(t *testing.T) {
	id := [16]byte{1, 2, 3}
	want := hexOf(t, Options{}, arg("image", id[:]))
	m := gray(2, 2)
	m.ID = &id
	require.Equal(t, want, hexOf(t, Options{}, arg("image", m)))
	require.Equal(t, want, hexOf(t, Options{}, arg("image", &EncodedImage{Data: []byte("JPEG"), ID: &id})))
	require.Equal(t, want, hexOf(t, Options{}, arg("image", &EncodedImage{Data: []byte("JPEG"), Pixels: m})))
	// Anything in the tag but a UUID is ignored: it is not an ID.
	require.NotEqual(t, want, hexOf(t, Options{}, arg("image", gray(2, 2))))
}

func TestUpstreamIOConfig(t *testing.T) {
	with := func(colour ...any) *EncodedImage {
		m := &EncodedImage{Data: []byte("PNG")}
		if colour != nil {
			m.IOConfig = []Entry{{"image_mode", "RGB"}, {"rgba_background_color", colour}}
		}
		return m
	}
	differ(t, with(), with(int64(255), int64(255), int64(255)), with(int64(0), int64(0), int64(0)))
	require.Equal(t, hexOf(t, Options{}, arg("x", with(int64(0)))), hexOf(t, Options{}, arg("x", with(int64(0)))))
	empty := with()
	empty.IOConfig = []Entry{}
	require.Equal(t, hexOf(t, Options{}, arg("x", with())), hexOf(t, Options{}, arg("x", empty)))
	old, err := pycompat.Lookup("0.26.0")
	require.NoError(t, err)
	o := Options{Generation: old}
	require.Equal(t, hexOf(t, o, arg("x", with())), hexOf(t, o, arg("x", with(int64(0)))), "not hashed before 0.27.0")
}

// TestUpstreamNoCollisions: what the joined form confuses and the framed form
// must not.
func TestUpstreamNoCollisions(t *testing.T) {
	pairs := [][2][]Entry{
		{{arg("ab", "c")}, {arg("a", "bc")}},
		{{arg("a", []any{})}, {}},
		{{arg("a", []Entry{})}, {}},
		{{arg("a", []any{int64(1)})}, {arg("a", []Entry{{"0", int64(1)}})}},
		{{arg("a", []Entry{{"b", int64(1)}})}, {arg("a.b", int64(1))}},
		{{arg("a", nil), arg("b", nil)}, {arg("ab", nil)}},
	}
	old, err := pycompat.Lookup("0.30.0")
	require.NoError(t, err)
	for _, p := range pairs {
		t.Run(fmt.Sprintf("%v and %v", p[0], p[1]), func(t *testing.T) {
			require.Equal(t, hexOf(t, Options{Generation: old}, p[0]...), hexOf(t, Options{Generation: old}, p[1]...))
			require.NotEqual(t, hexOf(t, Options{}, p[0]...), hexOf(t, Options{}, p[1]...))
		})
	}
	// What is left: the type of a leaf is not hashed.
	for _, p := range [][2]any{
		{"ab", []byte("ab")}, {true, []byte("\x01")}, {int64(0), float64(0)}, {int64(-1), uint64(1<<64 - 1)},
		{uint64(1 << 63), int64(-1 << 63)}, {int64(7), uint64(7)},
	} {
		t.Run(fmt.Sprintf("%T(%v) and %T(%v)", p[0], p[0], p[1], p[1]), func(t *testing.T) {
			require.Equal(t, hexOf(t, Options{}, arg("x", p[0])), hexOf(t, Options{}, arg("x", p[1])))
		})
	}
}
