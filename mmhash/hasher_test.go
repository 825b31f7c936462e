package mmhash

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/invariants"
	"github.com/ringcache/ringcache/pycompat"
)

func generation(t testing.TB, version string) *pycompat.Generation {
	t.Helper()
	g, err := pycompat.Lookup(version)
	require.NoError(t, err)
	return g
}

// TestStreamVectors has streams that were computed by hand from the rules of
// 0.16.0 to 0.30.0.
func TestStreamVectors(t *testing.T) {
	one := []byte{0, 0, 128, 63, 0, 0, 0, 64} // float32 1, 2
	for _, c := range []struct {
		args   []Entry
		len    int
		sha256 string
	}{
		{[]Entry{{"a", int64(1)}, {"b", "x"}, {"c", 2.5}, {"d", nil}, {"e", true}}, 23, "04e0573ce741772cbacb1f587482d9b179e928a41714aaaa9bebbc4dc65624c3"},
		{[]Entry{{"x", []any{int64(1), "y", []Entry{{"k", []byte("z")}}}}}, 21, "ce2576ab83be644719f19ba41cb494c8d10b494819e05ba7638bc3c95651c4d3"},
		{[]Entry{{"x", &Array{"|u1", []int{2, 2}, []byte{1, 2, 3, 4}}}}, 79, "6ad5b45594e23b4fcae32509c9eff9f4e57bc0dc695eb8e52ef262ffa326ccbd"},
		{[]Entry{{"x", &Tensor{"float32", []int{2}, one}}}, 66, "eb0dc5e302c9561743e82700dc95af9468252c315a4e720503be2014ded6aa14"},
		{[]Entry{{"x", &Tensor{"bfloat16", []int{2}, []byte{128, 63, 0, 64}}}}, 133, "41dc4b212cf7459044b343d734e45cba6bc48e1abed61cca96449ecac715c9c7"},
		{[]Entry{{"image", &Image{Mode: "RGB", Width: 1, Height: 1, Pixels: []byte{1, 2, 3}}}, {"model_id", "m"}}, 137, "0333d1111c0a8dd317331becde0a043d8035db84c1ac7327ae3bb3fa915e86fa"},
		{[]Entry{{"image", &EncodedImage{Data: []byte("JPEG")}}, {"model_id", "m"}}, 23, "cc2547daae167f36f57419d5dca4e755c25b048b9124b4684f7eae8772e213ed"},
		{[]Entry{{"x", &Array{"<f8", nil, []byte{0, 0, 0, 0, 0, 0, 4, 64}}}}, 37, "11a5dec0e7608f71351dd06b5828cce6ea205c2ca654e9a248c139e603fd7a88"},
	} {
		var b bytes.Buffer
		g := generation(t, "0.27.1")
		require.NoError(t, WriteStream(&b, g, c.args...))
		require.Len(t, b.Bytes(), c.len)
		require.Equal(t, c.sha256, hexOf(t, Options{g, "sha256"}, c.args...))
	}
}

func TestErrors(t *testing.T) {
	var deep any = int64(1)
	for range maxDepth + 1 {
		deep = []any{deep}
	}
	loop := []any{nil}
	loop[0] = loop
	for name, c := range map[string]struct {
		v    any
		want error
		text string
	}{
		"short data":         {&Array{"<f4", []int{2}, make([]byte, 7)}, errInvalid, `an array of shape [2] takes 8 bytes, there are 7`},
		"negative dimension": {&Array{"<f4", []int{-1}, nil}, errInvalid, `the shape of an array has a negative dimension`},
		"overflow":           {&Array{"<f4", []int{math.MaxInt, math.MaxInt}, nil}, errInvalid, `too many elements`},
		"overflow, empty":    {&Array{"<f4", []int{0, math.MaxInt, math.MaxInt}, nil}, errInvalid, `too many elements`},
		"dimensions":         {&Array{"|u1", make([]int, 65), nil}, errInvalid, `more than 64 dimensions`},
		"object array":       {&Array{"|O", []int{1}, make([]byte, 8)}, ErrUnsupported, `"|O" is no numpy type string`},
		"other spelling":     {&Array{"<u1", []int{1}, make([]byte, 1)}, ErrUnsupported, `"<u1" is no numpy type string`},
		"no byte order":      {&Array{"|f4", []int{1}, make([]byte, 4)}, ErrUnsupported, `"|f4" is no numpy type string`},
		"torch name":         {&Array{"float32", []int{1}, make([]byte, 4)}, ErrUnsupported, `"float32" is no numpy type string`},
		"complex 0-d":        {&Array{"<c8", nil, make([]byte, 8)}, ErrUnsupported, `of kind 'c' and 8 bytes`},
		"long double 0-d":    {&Array{"<f16", nil, make([]byte, 16)}, ErrUnsupported, `of kind 'f' and 16 bytes`},
		"date 0-d":           {&Array{"<M8[ns]", nil, make([]byte, 8)}, ErrUnsupported, `of kind 'M' and 8 bytes`},
		"no character":       {&Array{"<U1", nil, []byte{0, 0xd8, 0, 0}}, errInvalid, `an array of text holds what is no character`},
		"float8":             {&Tensor{"float8_e4m3fn", []int{1}, []byte{0}}, ErrUnsupported, `a tensor of "float8_e4m3fn"`},
		"numpy name":         {&Tensor{"<f4", []int{1}, make([]byte, 4)}, ErrUnsupported, `a tensor of "<f4"`},
		"short bfloat16":     {&Tensor{"bfloat16", []int{3}, make([]byte, 4)}, errInvalid, `a tensor of shape [3] takes 6 bytes, there are 4`},
		"short image":        {&Image{Mode: "RGB", Width: 2, Height: 1, Pixels: make([]byte, 5)}, errInvalid, `an image of shape [1 2 3] takes 6 bytes, there are 5`},
		"unknown mode":       {&Image{Mode: "RGB16", Width: 1, Height: 1}, ErrUnsupported, `"RGB16" is no mode`},
		"long palette":       {&Image{Mode: "PA", Palette: &Palette{"bytearray", make([]byte, 1025), ""}}, errInvalid, `a palette has 1025 bytes`},
		"palette type":       {&Image{Mode: "P", Palette: &Palette{Type: "tuple"}}, errInvalid, `the palette type "tuple" is unknown`},
		"not UTF-8":          {"\xff", errInvalid, `the text "\xff" is not valid UTF-8`},
		"key not UTF-8":      {[]Entry{{"\xff", int64(1)}}, errInvalid, `the text "\xff" is not valid UTF-8`},
		"too deep":           {deep, errInvalid, `nested more than 64 deep`},
		"endless":            {loop, errInvalid, `nested more than 64 deep`},
		"nil array":          {(*Array)(nil), errInvalid, `a nil *Array`},
		"nil tensor":         {(*Tensor)(nil), errInvalid, `a nil *Tensor`},
		"nil image":          {(*Image)(nil), errInvalid, `a nil *Image`},
		"nil encoded image":  {(*EncodedImage)(nil), errInvalid, `a nil *EncodedImage`},
		"nil encoded video":  {(*EncodedVideo)(nil), errInvalid, `a nil *EncodedVideo`},
		"no data":            {&EncodedImage{}, errInvalid, `the original bytes are missing`},
		"no video data":      {&EncodedVideo{Frames: &Array{"|u1", []int{0}, nil}}, errInvalid, `the original bytes are missing`},
		"no frames":          {&EncodedVideo{Data: []byte("x")}, errInvalid, `an *Array or a *Tensor, not <nil>`},
		"nil frames":         {&EncodedVideo{Data: []byte("x"), Frames: (*Array)(nil)}, errInvalid, `a nil *Array`},
		"video in video":     {&EncodedVideo{Data: []byte("x"), Frames: &EncodedVideo{}}, errInvalid, `not *mmhash.EncodedVideo`},
		"no reader":          {&Reader{nil, 1}, errInvalid, `a Reader needs a reader`},
		"negative length":    {&Reader{strings.NewReader(""), -1}, errInvalid, `a length of 0 or more`},
	} {
		for _, version := range []string{"0.26.0", "0.33.0"} {
			t.Run(name+"/"+version, func(t *testing.T) {
				h, err := NewHasher(Options{Generation: generation(t, version)})
				require.NoError(t, err)
				dst, err := h.AppendHex([]byte("kept"), arg("first", int64(1)), arg("it", c.v))
				if name == "no video data" && version == "0.26.0" {
					require.NoError(t, err, "frames alone are hashed")
					return
				}
				require.ErrorIs(t, err, c.want)
				require.Equal(t, "kept", string(dst))
				var e *ValueError
				require.ErrorAs(t, err, &e)
				require.Equal(t, "it", e.Arg)
				require.Contains(t, e.Problem, c.text)
				require.NotContains(t, err.Error(), "%!")
				// The hasher is none the worse for it.
				again, err := h.Hex(arg("x", int64(1)))
				require.NoError(t, err)
				require.Equal(t, hexOf(t, Options{Generation: generation(t, version)}, arg("x", int64(1))), again)
			})
		}
	}
	_, err := hexOrError(Options{}, arg("a", int64(1)), arg("b", int64(1)), arg("a", int64(1)))
	requireInvalid(t, err, "a", "given twice")
	_, err = hexOrError(Options{}, arg("\xff", int64(1)))
	requireInvalid(t, err, "\xff", "not valid UTF-8")
}

// requireInvalid requires a ValueError about an argument.
func requireInvalid(t *testing.T, err error, arg, problem string) {
	t.Helper()
	require.ErrorIs(t, err, errInvalid)
	var e *ValueError
	require.ErrorAs(t, err, &e)
	require.Equal(t, arg, e.Arg)
	require.Contains(t, e.Problem, problem)
}

func TestOptions(t *testing.T) {
	_, err := NewHasher(Options{Algorithm: "md5"})
	requireInvalid(t, err, "", `unknown hash algorithm "md5"`)
	_, err = NewHasher(Options{generation(t, "0.13.0"), "sha256"})
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, "0.13.0")
	_, err = NewHasher(Options{generation(t, "0.16.0"), "sha256"})
	require.NoError(t, err)
	for name, size := range map[string]int{"": 64, "blake3": 64, "BLAKE3": 64, "SHA256": 64, "Sha512": 128} {
		t.Run(name, func(t *testing.T) {
			got := hexOf(t, Options{Algorithm: name}, arg("a", 1))
			require.Len(t, got, size)
			same := strings.ToLower(name)
			if name == "" {
				same = "blake3"
			}
			require.Equal(t, hexOf(t, Options{Algorithm: same}, arg("a", 1)), got)
		})
	}
	require.NotEqual(t, hexOf(t, Options{}, arg("a", 1)), hexOf(t, Options{Algorithm: "sha256"}, arg("a", 1)))
	for _, name := range []string{"", "blake3", "BLAKE3"} { // also where no other is known
		_, err = NewHasher(Options{generation(t, "0.13.0"), name})
		require.NoError(t, err)
	}
}

func TestFloats(t *testing.T) {
	python := hexOf(t, Options{}, arg("x", []byte("\x00\x00\x00\x00\x00\x00\xf8\x7f")))
	require.Equal(t, python, hexOf(t, Options{}, arg("x", math.NaN())))
	require.Equal(t, python, hexOf(t, Options{}, arg("x", math.Float64frombits(pythonNaN))))
	negative := math.Float64frombits(0xfff8000000000000)
	require.NotEqual(t, python, hexOf(t, Options{}, arg("x", negative)))
	for half, want := range map[uint16]float64{
		0x0000: 0, 0x3c00: 1, 0xc000: -2, 0x7bff: 65504, 0x0001: math.Ldexp(1, -24), 0x83ff: -math.Ldexp(1023, -24),
		0x0400: math.Ldexp(1, -14), 0x7c00: math.Inf(1), 0xfc00: math.Inf(-1),
	} {
		t.Run(fmt.Sprintf("half %04x", half), func(t *testing.T) { require.Equal(t, want, halfToFloat(half)) })
	}
	require.True(t, math.Signbit(halfToFloat(0x8000)))
	require.True(t, math.IsNaN(halfToFloat(0x7e00)))
}

func TestReader(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789"), 20000)
	n := int64(len(data))
	for _, g := range []*pycompat.Generation{nil, generation(t, "0.27.1")} {
		o := Options{Generation: g}
		want := hexOf(t, o, arg("image", &EncodedImage{Data: data}))
		for _, r := range []io.Reader{bytes.NewReader(data), iotest.HalfReader(bytes.NewReader(data)), iotest.DataErrReader(bytes.NewReader(data))} {
			require.Equal(t, want, hexOf(t, o, arg("image", &EncodedImage{Reader: &Reader{r, n}})))
		}
		require.Equal(t, hexOf(t, o, arg("x", []byte(nil))), hexOf(t, o, arg("x", &Reader{strings.NewReader(""), 0})))

		_, err := hexOrError(o, arg("x", &Reader{bytes.NewReader(data), n + 1}))
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		_, err = hexOrError(o, arg("x", &Reader{strings.NewReader(""), 1}))
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		_, err = hexOrError(o, arg("x", &Reader{bytes.NewReader(data), n - 1}))
		requireInvalid(t, err, "x", fmt.Sprintf("more than its %d bytes", n-1))
		broken := errors.New("broken")
		for _, at := range []int64{0, 100, n} {
			r := io.MultiReader(bytes.NewReader(data[:at]), iotest.ErrReader(broken))
			_, err = hexOrError(o, arg("x", &Reader{r, n}))
			require.ErrorIs(t, err, broken, at)
		}
	}
}

type failing struct{ after int }

func (f *failing) Write(p []byte) (int, error) {
	if f.after -= len(p); f.after < 0 {
		return 0, io.ErrClosedPipe
	}
	return len(p), nil
}

func TestWriteStreamPassesErrorsOn(t *testing.T) {
	for after := range 30 {
		err := WriteStream(&failing{after}, nil, arg("x", make([]byte, 2*gather)), arg("y", []any{int64(1)}))
		require.ErrorIs(t, err, io.ErrClosedPipe)
	}
}

// TestAppendIsFreeOfAllocations: the common cases, the values made anew for
// every hash.
func TestAppendIsFreeOfAllocations(t *testing.T) {
	file, pixels, shape := make([]byte, 100_000), make([]byte, 3*64*64*2), []int{3, 64, 64}
	dst := make([]byte, 0, 128)
	model := strings.Repeat("org/model", 2)
	for _, o := range []Options{{}, {Algorithm: "sha256"}, {Algorithm: "sha512"}, {Generation: generation(t, "0.13.0")}} {
		h, err := NewHasher(o)
		require.NoError(t, err)
		check := func(name string, hash func() ([]byte, error)) {
			require.Zero(t, testing.AllocsPerRun(50, func() {
				if _, err := hash(); err != nil {
					t.Fatal(err)
				}
			}), name)
		}
		check("file", func() ([]byte, error) {
			return h.AppendHex(dst, arg("model_id", model), arg("image", &EncodedImage{Data: file}))
		})
		check("bytes", func() ([]byte, error) {
			return h.AppendHex(dst, arg("model_id", model), arg("image", file), arg("n", int64(4)), arg("f", 0.5))
		})
		check("tensor", func() ([]byte, error) {
			return h.AppendHex(dst, arg("model_id", model), arg("image", &Tensor{"bfloat16", shape, pixels}))
		})
		from := new(bytes.Reader)
		reader := &Reader{from, int64(len(file))}
		check("reader", func() ([]byte, error) {
			from.Reset(file)
			return h.AppendHex(dst, arg("model_id", model), arg("image", &EncodedImage{Reader: reader}))
		})
		check("pixels", func() ([]byte, error) {
			return h.AppendHex(dst, arg("model_id", model), arg("image", &Image{Mode: "RGB", Width: 64, Height: 128, Pixels: pixels}))
		})
	}
}

// TestAllocationsOfKeys: a key is one, of any item; the name of the model, which becomes an argument, another.
func TestAllocationsOfKeys(t *testing.T) {
	if invariants.Enabled {
		t.Skip("under the race detector a sync.Pool loses some of what it holds")
	}
	model := strings.Repeat("org/model", 2)
	fps := []Entry{{"fps", 2.5}, {"size", []Entry{{"longest_edge", int64(1)}}}}
	h, err := NewHasher(Options{})
	require.NoError(t, err)
	for _, size := range []int{10, 100_000} {
		item := &EncodedImage{Data: make([]byte, size)}
		require.LessOrEqual(t, testing.AllocsPerRun(50, func() {
			if _, err := NativeKey(Scope{"t", model, "image"}, "uuid", item, fps...); err != nil {
				t.Fatal(err)
			}
		}), 1.0, "a native key of %d bytes", size)
		require.LessOrEqual(t, testing.AllocsPerRun(50, func() {
			if _, err := h.Key(Identity{ModelID: model, Modality: "image", Item: item}); err != nil {
				t.Fatal(err)
			}
		}), 2.0, "a key of vLLM's of %d bytes", size)
	}
}

func TestPickledByteArrays(t *testing.T) {
	for n, want := range map[int]string{ // by CPython 3.11
		0: "8004951d000000000000008c086275696c74696e73948c096279746561727261799493942952942e",
		2: "80049523000000000000008c086275696c74696e73948c0962797465617272617994939443020000948594" + "52942e",
	} {
		require.Equal(t, want, hex.EncodeToString(pickleByteArray(make([]byte, n))))
	}
	long := pickleByteArray(make([]byte, 256))
	require.Len(t, long, 303)
	require.Equal(t, "80049524010000000000008c086275696c74696e73948c0962797465617272617994939442000100000000", hex.EncodeToString(long[:42])+"00")
}
