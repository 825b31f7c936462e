package codec_test

import (
	"encoding/hex"
	"io/fs"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/codec"
)

// encoded returns the main document of what write writes.
func encoded(t testing.TB, write func(*codec.Encoder)) []byte {
	t.Helper()
	e := codec.NewEncoder(codec.DefaultThreshold)
	write(e)
	require.NoError(t, e.Err())
	doc, err := e.Document()
	require.NoError(t, err)
	require.Len(t, doc, e.Len())
	return doc
}

// TestEncoderWritesMessagePack compares each call with bytes that follow from the
// specification by hand, each integer in its shortest form, as msgspec writes it.
func TestEncoderWritesMessagePack(t *testing.T) {
	one, text := 1, "a"
	for name, c := range map[string]struct {
		write func(*codec.Encoder)
		want  string
	}{
		"nil":           {func(e *codec.Encoder) { e.Nil() }, "c0"},
		"true":          {func(e *codec.Encoder) { e.Bool(true) }, "c3"},
		"false":         {func(e *codec.Encoder) { e.Bool(false) }, "c2"},
		"0":             {func(e *codec.Encoder) { e.Int(0) }, "00"},
		"127":           {func(e *codec.Encoder) { e.Int(127) }, "7f"},
		"128":           {func(e *codec.Encoder) { e.Int(128) }, "cc80"},
		"256":           {func(e *codec.Encoder) { e.Int(256) }, "cd0100"},
		"2^16":          {func(e *codec.Encoder) { e.Int(1 << 16) }, "ce00010000"},
		"2^32":          {func(e *codec.Encoder) { e.Int(1 << 32) }, "cf0000000100000000"},
		"-1":            {func(e *codec.Encoder) { e.Int(-1) }, "ff"},
		"-32":           {func(e *codec.Encoder) { e.Int(-32) }, "e0"},
		"-33":           {func(e *codec.Encoder) { e.Int(-33) }, "d0df"},
		"-129":          {func(e *codec.Encoder) { e.Int(-129) }, "d1ff7f"},
		"-2^63":         {func(e *codec.Encoder) { e.Int(math.MinInt64) }, "d38000000000000000"},
		"2^64-1":        {func(e *codec.Encoder) { e.Uint(math.MaxUint64) }, "cfffffffffffffffff"},
		"small Uint":    {func(e *codec.Encoder) { e.Uint(7) }, "07"},
		"float":         {func(e *codec.Encoder) { e.Float(1.5) }, "cb3ff8000000000000"},
		"whole float":   {func(e *codec.Encoder) { e.Float(2) }, "cb4000000000000000"},
		"text":          {func(e *codec.Encoder) { e.Text("ab") }, "a26162"},
		"text of 32":    {func(e *codec.Encoder) { e.Text("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa") }, "d920" + "6161616161616161616161616161616161616161616161616161616161616161"},
		"bytes":         {func(e *codec.Encoder) { e.Bytes([]byte{1, 2}) }, "c4020102"},
		"nil bytes":     {func(e *codec.Encoder) { e.Bytes(nil) }, "c400"},
		"array":         {func(e *codec.Encoder) { e.Array(1); e.Nil() }, "91c0"},
		"map":           {func(e *codec.Encoder) { e.Map(1); e.Text("a"); e.Int(1) }, "81a16101"},
		"map16":         {func(e *codec.Encoder) { e.Map16(1); e.Text("a"); e.Int(1) }, "de0001a16101"},
		"texts":         {func(e *codec.Encoder) { e.Texts([]string{"a", "b"}) }, "92a161a162"},
		"no texts":      {func(e *codec.Encoder) { e.Texts(nil) }, "90"},
		"tokens":        {func(e *codec.Encoder) { e.Tokens([]uint32{1, math.MaxUint32}) }, "9201ceffffffff"},
		"sorted map":    {func(e *codec.Encoder) { e.TextMap(map[string]string{"b": "2", "a": "1"}) }, "82a161a131a162a132"},
		"nil map":       {func(e *codec.Encoder) { e.TextMap(nil) }, "c0"},
		"empty map":     {func(e *codec.Encoder) { e.TextMap(map[string]string{}) }, "80"},
		"optional":      {func(e *codec.Encoder) { codec.WriteOptional(e, &text, e.Text) }, "a161"},
		"optional int":  {func(e *codec.Encoder) { codec.WriteOptional(e, &one, func(n int) { e.Int(int64(n)) }) }, "01"},
		"optional None": {func(e *codec.Encoder) { codec.WriteOptional(e, nil, e.Text) }, "c0"},
		"inline tensor": {func(e *codec.Encoder) { e.Head("uint8", []int{2}); e.Payload([]byte{7, 8}, 2, false) }, "93a575696e74389102d5030708"},
		"hole":          {func(e *codec.Encoder) { e.Payload(nil, 2, false) }, "d5030000"},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, hex.EncodeToString(encoded(t, c.write))) })
	}
}

// TestPayloadsBecomeFrames: by the threshold, counted from 1, and also without bytes.
func TestPayloadsBecomeFrames(t *testing.T) {
	for _, c := range []struct {
		threshold int // of Options
		sizes     []int
		want      string // the main document: an array of references
		frames    []int
	}{
		{0, []int{255}, "91c7ff03", nil},
		{0, []int{256}, "9101", []int{256}},
		{0, []int{256, 300, 256}, "93010203", []int{256, 300, 256}},
		{1, []int{0, 1}, "92c7000301", []int{1}},
		{-1, []int{0}, "9101", []int{0}},
		{-5, []int{0, 2}, "920102", []int{0, 2}},
		{1000, []int{999}, "91c803e703", nil},
	} {
		e := codec.NewEncoder(codec.Threshold(c.threshold))
		e.Array(len(c.sizes))
		aux := 0
		for _, n := range c.sizes {
			offset, inline := e.Payload(make([]byte, n), n, false)
			if !inline {
				require.Equal(t, aux, offset, "counted from the end of the document")
				aux += n
			}
		}
		require.Equal(t, aux, e.AuxLen())
		f, err := e.Frames()
		require.NoError(t, err)
		require.Equal(t, c.want, hex.EncodeToString(f[0])[:len(c.want)], "%+v", c)
		var sizes []int
		for _, b := range f[1:] {
			sizes = append(sizes, len(b))
		}
		require.Equal(t, c.frames, sizes, "%+v", c)
	}
	e := codec.NewEncoder(0)
	offset, inline := e.Payload([]byte{1}, 1, true)
	require.True(t, inline, "on demand below any threshold")
	require.Equal(t, 2, offset, "behind the header of the extension")
}

// TestFirstErrorSticks: nothing that follows replaces it, and no frames come out.
func TestFirstErrorSticks(t *testing.T) {
	e := codec.NewEncoder(codec.DefaultThreshold)
	e.Elem = "pixel_values"
	e.Text("\xff")
	e.Elem = ""
	e.Invalid("something", "is wrong")
	e.Int(1)
	e.Fail(nil)
	const want = `serde: cannot encode string of elem "pixel_values": "\xff" is not UTF-8`
	require.EqualError(t, e.Err(), want)
	require.ErrorIs(t, e.Err(), fs.ErrInvalid)
	_, err := e.Frames()
	require.EqualError(t, err, want)
	_, err = e.Document()
	require.EqualError(t, err, want)
	e.Splice(func([][]byte) ([][]byte, error) {
		t.Error("a value is written behind an error")
		return nil, nil
	})
	require.EqualError(t, e.Err(), want)
}

func TestEncoderRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		write func(*codec.Encoder)
		text  string
	}{
		"no UTF-8":          {func(e *codec.Encoder) { e.Text("a\xff") }, `string: "a\xff" is not UTF-8`},
		"no UTF-8 in texts": {func(e *codec.Encoder) { e.Texts([]string{"a", "\xff"}) }, `string: "\xff" is not UTF-8`},
		"no UTF-8 as key":   {func(e *codec.Encoder) { e.TextMap(map[string]string{"\xff": ""}) }, `string: "\xff" is not UTF-8`},
		"long array":        {func(e *codec.Encoder) { e.Array(math.MaxUint32 + 1) }, "length: 4294967296 is more than MessagePack can express"},
		"long map":          {func(e *codec.Encoder) { e.Map(math.MaxUint32 + 1) }, "length: 4294967296 is more than MessagePack can express"},
		"negative length":   {func(e *codec.Encoder) { e.Array(-1) }, "length: -1 is more than MessagePack can express"},
		"bytes overflow": {func(e *codec.Encoder) {
			e.Payload(nil, math.MaxInt, false)
			e.Payload(nil, 300, false)
		}, "tensor: the value has more bytes than an int can count"},
		"frames where one is": {func(e *codec.Encoder) { e.Payload(make([]byte, 300), 300, false) }, "tensor: this message has one frame only"},
	} {
		t.Run(name, func(t *testing.T) {
			e := codec.NewEncoder(codec.DefaultThreshold)
			c.write(e)
			_, err := e.Document()
			require.ErrorIs(t, err, fs.ErrInvalid)
			require.ErrorContains(t, err, "serde: cannot encode "+c.text)
		})
	}
}

// TestAppendGoesOn: an Encoder over frames appends to the document and counts its
// frames behind those that are there.
func TestAppendGoesOn(t *testing.T) {
	first, second := make([]byte, 300), make([]byte, 400)
	whole := codec.NewEncoder(codec.DefaultThreshold)
	whole.Array(2)
	whole.Payload(first, 300, false)
	whole.Payload(second, 400, false)
	want, err := whole.Frames()
	require.NoError(t, err)

	e := codec.NewEncoder(codec.DefaultThreshold)
	e.Array(2)
	e.Payload(first, 300, false)
	e.Splice(func(frames [][]byte) ([][]byte, error) {
		sub := codec.Append(frames, codec.DefaultThreshold)
		require.Equal(t, 300, sub.AuxLen())
		sub.Payload(second, 400, false)
		return sub.Frames()
	})
	require.Equal(t, 700, e.AuxLen())
	got, err := e.Frames()
	require.NoError(t, err)
	require.Equal(t, want, got)

	e.Splice(func([][]byte) ([][]byte, error) { return nil, codec.Invalid("part", "is no %s", "good") })
	require.EqualError(t, e.Err(), "serde: cannot encode part: is no good")
}
