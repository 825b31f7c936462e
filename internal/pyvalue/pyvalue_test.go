package pyvalue_test

import (
	"encoding/hex"
	"errors"
	"io/fs"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/internal/codec"
	"github.com/ringcache/ringcache/internal/pyvalue"
	"github.com/ringcache/ringcache/serde"
)

func write(v any) ([][]byte, error) {
	e := codec.NewEncoder(codec.DefaultThreshold)
	pyvalue.Write(e, "value", v)
	return e.Frames()
}

func read(frames [][]byte, arrays bool) (any, error) {
	return codec.Decode(frames, func(d *codec.Decoder) (any, error) {
		d.AnyFrames = !arrays // an array is read as the list that it is encoded as
		return pyvalue.Read(d, "value", arrays)
	})
}

// TestCanonical: what a caller has becomes what a decoder gives, and is written so.
func TestCanonical(t *testing.T) {
	type text string
	array := &serde.NDArray{DType: "<i2", Shape: []int{1}, Data: []byte{1, 0}}
	for name, c := range map[string]struct {
		in, want any
		doc      string
	}{
		"nil":          {nil, nil, "c0"},
		"bool":         {true, true, "c3"},
		"int":          {7, int64(7), "07"},
		"uint8":        {uint8(200), int64(200), "ccc8"},
		"large":        {uint64(math.MaxUint64), uint64(math.MaxUint64), "cfffffffffffffffff"},
		"duration":     {time.Duration(-1), int64(-1), "ff"},
		"float32":      {float32(0.5), 0.5, "cb3fe0000000000000"},
		"named text":   {text("a"), "a", "a161"},
		"bytes":        {[]byte{1}, []byte{1}, "c40101"},
		"array of int": {[2]int{1, 2}, []any{int64(1), int64(2)}, "920102"},
		"nil slice":    {[]string(nil), []any{}, "90"},
		"map":          {map[string]int{"b": 2, "a": 1}, map[string]any{"a": int64(1), "b": int64(2)}, "82a16101a16202"},
		"map of int":   {map[int8]bool{2: true, -1: false}, &serde.Map{Keys: []any{int64(-1), int64(2)}, Values: []any{false, true}}, "82ffc202c3"},
		"Map":          {&serde.Map{Keys: []any{"b", 1.5}, Values: []any{1, nil}}, &serde.Map{Keys: []any{"b", 1.5}, Values: []any{int64(1), nil}}, "82a16201cb3ff8000000000000c0"},
		"nil Map":      {(*serde.Map)(nil), nil, "c0"},
		"ndarray":      {array, array, "93a33c69329101d5030100"},
		"nil ndarray":  {(*serde.NDArray)(nil), nil, "c0"},
		"tensor":       {&serde.Tensor{DType: "bool", Shape: []int{}, Data: []byte{1}}, &serde.Tensor{DType: "bool", Shape: []int{}, Data: []byte{1}}, "93a4626f6f6c90d40301"},
		"nil tensor":   {(*serde.Tensor)(nil), nil, "c0"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := pyvalue.Canonical(c.in)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
			f, err := write(c.in)
			require.NoError(t, err)
			require.Equal(t, c.doc, hex.EncodeToString(f[0]))
			back, err := read(f, true)
			require.NoError(t, err)
			require.Equal(t, c.want, back)
		})
	}
}

func TestWriteRefuses(t *testing.T) {
	deep := any(1)
	for range codec.MaxDepth + 1 {
		deep = []any{deep}
	}
	for text, v := range map[string]any{
		"a chan int has no form in MessagePack here":                                 make(chan int),
		"a func() has no form in MessagePack here":                                   func() {},
		"a *int64 has no form in MessagePack here":                                   new(int64(1)),
		`"\xff" is not UTF-8`:                                                        []string{"\xff"},
		"it is nested deeper than 64":                                                deep,
		"a Map has 1 keys and 0 values":                                              &serde.Map{Keys: []any{1}},
		"a []int can't be the key of a map":                                          &serde.Map{Keys: []any{[]int{1}}, Values: []any{1}},
		"a map[float64]int has keys that are neither strings nor integers":           map[float64]int{1: 1},
		`ndarray: "x" is no numpy type string of numbers, bools or text`:             &serde.NDArray{DType: "x"},
		"ndarray: <f4 [2] takes 8 bytes, Data has 7":                                 &serde.NDArray{DType: "<f4", Shape: []int{2}, Data: make([]byte, 7)},
		"ndarray: shape [-1] has a negative dimension":                               &serde.NDArray{DType: "<f4", Shape: []int{-1}},
		`tensor: dtype "half" is none that torch prints; use ParseDType for aliases`: &serde.Tensor{DType: "half", Shape: []int{1}, Data: make([]byte, 2)},
		"tensor: it has no Data; only NewPlan takes layouts":                         &serde.Tensor{DType: "bool", Shape: []int{1}},
		"tensor: bool [1] takes 1 bytes, Data has 2":                                 &serde.Tensor{DType: "bool", Shape: []int{1}, Data: make([]byte, 2)},
	} {
		t.Run(text, func(t *testing.T) {
			_, err := write(v)
			require.ErrorIs(t, err, fs.ErrInvalid)
			require.ErrorContains(t, err, text)
		})
	}
}

func TestReadRefuses(t *testing.T) {
	for doc, text := range map[string]string{
		"\x81\xc0\x01":                                         "got nil, want a string or a number as key",
		"\x81\x90\x01":                                         "got an array, want a string or a number as key",
		"\xd4\x01a":                                            "value holds the extension 1, which is never executed",
		strings.Repeat("\x91", 65) + "\x01":                    "got more, want at most 64 levels",
		"\x93\xa4half\x91\x02\xd5\x03ab":                       "got 2, want 4 bytes by dtype and shape",
		"\x93\xa3<f4\x91\x02\xd5\x03ab":                        "got 2, want 8 bytes by dtype and shape",
		"\x93\xa3<f4\x91\xff\xd5\x03ab":                        "shape at byte 7: got -1, want at least 0",
		"\x93\xa4bool\x01\xd5\x03ab":                           "shape at byte 6: got an integer, want an array",
		"\x93\xa4bool\x91\x01\x03":                             "got 3, want the index of one of 0 frames",
		"\xdd\x00\x05\x00\x00" + strings.Repeat("\x80", 5<<16): "got too many small ones, want values worth their bytes",
	} {
		_, err := read([][]byte{[]byte(doc)}, true)
		require.True(t, errors.Is(err, codec.ErrCorrupt) || errors.Is(err, codec.ErrUnsupported), "%v", err)
		require.ErrorContains(t, err, text)
	}
	// What looks like an array is a list where none is expected.
	v, err := read([][]byte{[]byte("\x93\xa4bool\x91\x01\xc4\x01a")}, false)
	require.NoError(t, err)
	require.Equal(t, []any{"bool", []any{int64(1)}, []byte("a")}, v)
	v, err = read([][]byte{[]byte("\x93\xaatorch.bool\x90\x01")}, true)
	require.NoError(t, err, "which no peer writes")
	require.Equal(t, []any{"torch.bool", []any{}, int64(1)}, v)
	_, err = codec.Decode([][]byte{[]byte("\x81\x01\x01")}, func(d *codec.Decoder) (any, error) { return pyvalue.ReadMap(d, "value") })
	require.ErrorContains(t, err, "value at byte 3: got a *serde.Map, want a map with strings for keys")
}

func draw(t *rapid.T, depth int) any {
	top := 9
	if depth == 0 {
		top = 7
	}
	switch rapid.IntRange(0, top).Draw(t, "kind") {
	case 0:
		return nil
	case 1:
		return rapid.Bool().Draw(t, "bool")
	case 2:
		return rapid.Int64().Draw(t, "int")
	case 3:
		return rapid.Uint64Min(1<<63).Draw(t, "uint")
	case 4:
		return rapid.Float64().Draw(t, "float")
	case 5:
		return rapid.String().Draw(t, "text")
	case 6:
		return append([]byte{}, rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "bytes")...)
	case 7:
		n := rapid.SampledFrom([]int{0, 3, 300}).Draw(t, "n")
		if rapid.Bool().Draw(t, "torch") {
			return &serde.Tensor{DType: "int16", Shape: []int{n}, Data: make([]byte, 2*n)}
		}
		return &serde.NDArray{DType: ">u2", Shape: []int{1, n}, Data: make([]byte, 2*n)}
	case 8:
		out := make([]any, rapid.IntRange(0, 4).Draw(t, "len"))
		for i := range out {
			out[i] = draw(t, depth-1)
		}
		return out
	}
	if rapid.Bool().Draw(t, "texts") {
		out := map[string]any{}
		for range rapid.IntRange(0, 3).Draw(t, "len") {
			out[rapid.String().Draw(t, "key")] = draw(t, depth-1)
		}
		return out
	}
	m := &serde.Map{Keys: []any{rapid.Int64().Draw(t, "key")}, Values: []any{draw(t, depth-1)}}
	return m
}

// TestPropertyRoundTrip: a canonical value is written and read the same, and no value
// that is cut at any byte is read.
func TestPropertyRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := draw(t, 3)
		f, err := write(want)
		require.NoError(t, err)
		got, err := read(f, true)
		require.NoError(t, err)
		require.Equal(t, want, got)
		for n := range f[0] {
			_, err := read(append([][]byte{f[0][:n:n]}, f[1:]...), true)
			require.ErrorIs(t, err, codec.ErrCorrupt)
			_, err = codec.DecodeUnguarded(append([][]byte{f[0][:n:n]}, f[1:]...), func(d *codec.Decoder) (any, error) { return pyvalue.Read(d, "value", true) })
			require.ErrorIs(t, err, codec.ErrCorrupt, "%d of %d bytes", n, len(f[0]))
		}
	})
}
