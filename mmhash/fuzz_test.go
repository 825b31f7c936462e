package mmhash

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/pycompat"
)

// seeds are native streams, from which the fuzz targets read values.
func seeds(f *testing.F) {
	for _, v := range []any{
		nil, int64(-1), uint64(1 << 63), 1.5, "a", []byte("b"), Pickled("\x80\x04N."), []any{true, nil},
		[]Entry{{"k", []any{}}}, &Array{"<f4", []int{1, 2}, make([]byte, 8)}, &Array{">f2", nil, []byte{0x3c, 0}}, &Array{"<U2", nil, make([]byte, 8)},
		&Tensor{"bfloat16", []int{2}, make([]byte, 4)},
		&Image{Mode: "PA", Width: 1, Height: 1, Pixels: []byte{0, 255}, Palette: &Palette{"bytearray", []byte{1, 2, 3}, ""}},
		&EncodedImage{Data: []byte("JPEG"), IOConfig: []Entry{{"image_mode", "RGB"}}, Pixels: gray(1, 1)},
		&EncodedVideo{Data: []byte("MP4"), Frames: &Array{"|u1", []int{1}, []byte{7}}},
	} {
		b, err := nativeInput{Scope{"t", "m", "image"}, "u", v, []Entry{{"a", int64(1)}}}.stream()
		require.NoError(f, err)
		f.Add(b)
	}
}

// FuzzStream hashes arbitrary values by the rules of every generation.
func FuzzStream(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		in, _ := readNative(b)
		args := append([]Entry{{"model_id", in.Scope.Model}, {in.Scope.Modality, in.Item}}, in.Kwargs...)
		for _, g := range pycompat.Releases() {
			var one, two bytes.Buffer
			err := WriteStream(&one, g, args...)
			if err != nil && !errors.Is(err, errInvalid) && !errors.Is(err, ErrUnsupported) {
				t.Fatal(err)
			}
			if again := WriteStream(&two, g, args...); (err == nil) != (again == nil) || err == nil && !bytes.Equal(one.Bytes(), two.Bytes()) {
				t.Fatalf("%s: two hashes of one value differ", g.Version)
			}
		}
	})
}

// FuzzNative writes arbitrary values as a native stream, from which they must
// come back.
func FuzzNative(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		in, _ := readNative(b)
		first, err := in.stream()
		if err != nil {
			if !errors.Is(err, errInvalid) {
				t.Fatal(err)
			}
			return
		}
		back, ok := readNative(first)
		if !ok || show(back) != show(in.canonical()) {
			t.Fatalf("got  %s\nwant %s", show(back), show(in.canonical()))
		}
	})
}
