package codec_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/codec"
)

// reader reads one value as something, for tables.
type reader func(*codec.Decoder) (any, error)

func of[T any](read func(*codec.Decoder, string) (T, error)) reader {
	return func(d *codec.Decoder) (any, error) { return read(d, "part") }
}

var (
	integer = of((*codec.Decoder).Integer)
	array   = of((*codec.Decoder).Array)
	bytes   = of((*codec.Decoder).Bytes)
	texts   = of((*codec.Decoder).Texts)
	shape   = func(d *codec.Decoder) (any, error) { return d.Shape() }
	payload = func(n int) reader {
		return func(d *codec.Decoder) (any, error) { return d.Payload("part", n) }
	}
	object = func(d *codec.Decoder) (any, error) {
		out := map[string]int{}
		return out, d.Object("part", []string{"a"}, func(name string) (bool, error) {
			if name != "a" && name != "b" {
				return false, nil
			}
			n, err := d.Int(name)
			out[name] = n
			return true, err
		})
	}
	from5 = func(d *codec.Decoder) (any, error) { return d.IntFrom("part", 5) }
	pair  = func(d *codec.Decoder) (any, error) { return nil, d.ArrayOf(2, "part") }
)

func TestDecoderReads(t *testing.T) {
	for name, c := range map[string]struct {
		doc  string
		read reader
		want any
	}{
		"nil":            {"\xc0", func(d *codec.Decoder) (any, error) { return d.Nil(), nil }, true},
		"bool":           {"\xc3", of((*codec.Decoder).Bool), true},
		"integer":        {"\xd1\x80\x00", integer, int64(-1 << 15)},
		"integer, long":  {"\xd3\x00\x00\x00\x00\x00\x00\x00\x07", integer, int64(7)},
		"uint64, small":  {"\xcf\x00\x00\x00\x00\x00\x00\x00\x07", integer, int64(7)},
		"2^63-1":         {"\xcf\x7f\xff\xff\xff\xff\xff\xff\xff", integer, int64(math.MaxInt64)},
		"2^63":           {"\xcf\x80\x00\x00\x00\x00\x00\x00\x00", integer, uint64(1 << 63)},
		"Int64":          {"\xff", of((*codec.Decoder).Int64), int64(-1)},
		"Uint64":         {"\xcf\xff\xff\xff\xff\xff\xff\xff\xff", of((*codec.Decoder).Uint64), uint64(math.MaxUint64)},
		"Uint32":         {"\xce\xff\xff\xff\xff", of((*codec.Decoder).Uint32), uint32(math.MaxUint32)},
		"Int":            {"\xe0", of((*codec.Decoder).Int), -32},
		"IntFrom":        {"\x05", from5, 5},
		"float":          {"\xcb\x3f\xf8\x00\x00\x00\x00\x00\x00", of((*codec.Decoder).Float), 1.5},
		"float32":        {"\xca\x3f\xc0\x00\x00", of((*codec.Decoder).Float), 1.5},
		"int for float":  {"\xff", of((*codec.Decoder).Float), float64(-1)},
		"big for float":  {"\xcf\x80\x00\x00\x00\x00\x00\x00\x00", of((*codec.Decoder).Float), float64(1 << 63)},
		"text":           {"\xa1a", of((*codec.Decoder).Text), "a"},
		"text32":         {"\xdb\x00\x00\x00\x01a", of((*codec.Decoder).Text), "a"},
		"view":           {"\xa1a", of((*codec.Decoder).TextView), []byte("a")},
		"bytes":          {"\xc4\x01a", bytes, []byte("a")},
		"raw extension":  {"\xd4\x03a", bytes, []byte("a")},
		"texts":          {"\x92\xa1a\xa0", texts, []string{"a", ""}},
		"tokens":         {"\x91\xce\xff\xff\xff\xff", of((*codec.Decoder).Tokens), []uint32{math.MaxUint32}},
		"bools":          {"\x92\xc2\xc3", of((*codec.Decoder).Bools), []bool{false, true}},
		"text map":       {"\x81\xa1a\xa1b", of((*codec.Decoder).TextMap), map[string]string{"a": "b"}},
		"shape":          {"\x92\x02\x00", shape, []int{2, 0}},
		"payload":        {"\xd4\x03a", payload(1), []byte("a")},
		"empty payload":  {"\xc7\x00\x03", payload(0), []byte{}},
		"object":         {"\x83\xa1b\x02\xa1x\x92\xc0\x81\xa1y\x01\xa1a\x01", object, map[string]int{"a": 1, "b": 2}},
		"skipped":        {"\x92\x81\xa1y\xd4\x05z\x01", func(d *codec.Decoder) (any, error) { return nil, d.Skip("part") }, nil},
		"optional":       {"\x01", func(d *codec.Decoder) (any, error) { return codec.ReadOptional(d, "part", d.Int) }, new(1)},
		"optional, None": {"\xc0", func(d *codec.Decoder) (any, error) { return codec.ReadOptional(d, "part", d.Int) }, (*int)(nil)},
		"tensor": {"\x92\x91\x02\xd5\x03ab", func(d *codec.Decoder) (any, error) {
			if err := d.ArrayOf(2, "tensor"); err != nil {
				return nil, err
			}
			shape, data, err := d.Tensor(1)
			return fmt.Sprint(shape, data), err
		}, "[2] [97 98]"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, decode := range []func([][]byte, func(*codec.Decoder) (any, error)) (any, error){codec.Decode[any], codec.DecodeUnguarded[any]} {
				got, err := decode([][]byte{[]byte(c.doc)}, c.read)
				require.NoError(t, err)
				require.Equal(t, c.want, got)
			}
			// In the middle of a document it is the same.
			doc := "\xc0" + c.doc + "\xc0"
			got, end, err := codec.DecodePart([][]byte{[]byte(doc)}, 1, c.read)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
			require.Equal(t, 1+len(c.doc), end)
		})
	}
}

// TestDecoderRefuses: each refusal names the part, the place, and what was there.
func TestDecoderRefuses(t *testing.T) {
	deep := strings.Repeat("\x91", codec.MaxDepth+17) + "\xc0"
	for name, c := range map[string]struct {
		doc  string
		read reader
		want string
	}{
		"nothing":                   {"", array, "main document at byte 0: got the document ends inside a value, want one MessagePack value"},
		"two values":                {"\x01\x02", integer, "main document at byte 1: got 1 bytes follow the document, want one MessagePack value"},
		"no type":                   {"\xc1", integer, "main document at byte 0: got byte 0xc1 is no MessagePack type, want one MessagePack value"},
		"too deep":                  {deep, array, "got nested deeper than 80 levels, want one MessagePack value"},
		"less than all":             {"\x91\x01", array, "main document at byte 1: got 1 more bytes, want its end"},
		"nil for an integer":        {"\xc0", integer, "part at byte 0: got nil, want an integer"},
		"float for an integer":      {"\xca\x00\x00\x00\x00", integer, "part at byte 0: got a float, want an integer"},
		"bool for an integer":       {"\xc3", integer, "part at byte 0: got a bool, want an integer"},
		"integer for a bool":        {"\x01", of((*codec.Decoder).Bool), "part at byte 0: got an integer, want a bool"},
		"text for a float":          {"\xa1a", of((*codec.Decoder).Float), "part at byte 0: got a string, want a float"},
		"bytes for text":            {"\xc4\x01a", of((*codec.Decoder).Text), "part at byte 0: got bytes, want a string"},
		"map for an array":          {"\x80", array, "part at byte 0: got a map, want an array"},
		"array for a map":           {"\x90", of((*codec.Decoder).Map), "part at byte 0: got an array, want a map"},
		"extension for a map":       {"\xd4\x03a", of((*codec.Decoder).Map), "part at byte 0: got an extension, want a map"},
		"one for two":               {"\x91\x01", pair, "part at byte 1: got one of 1, want an array of 2"},
		"too large for int64":       {"\xcf\x80\x00\x00\x00\x00\x00\x00\x00", of((*codec.Decoder).Int64), "got 9223372036854775808, want a signed 64-bit integer"},
		"negative uint64":           {"\xff", of((*codec.Decoder).Uint64), "part at byte 1: got -1, want 0 or more"},
		"negative uint32":           {"\xff", of((*codec.Decoder).Uint32), "part at byte 1: got -1, want an unsigned 32-bit integer"},
		"too large for uint32":      {"\xcf\x00\x00\x00\x01\x00\x00\x00\x00", of((*codec.Decoder).Uint32), "got 4294967296, want an unsigned 32-bit integer"},
		"below 5":                   {"\x04", from5, "part at byte 1: got 4, want at least 5"},
		"not UTF-8":                 {"\xa1\xff", of((*codec.Decoder).Text), `part at byte 2: got "\xff", want UTF-8`},
		"not UTF-8 in a list":       {"\x92\xa1a\xa1\xff", texts, `got "\xff", want UTF-8`},
		"negative dimension":        {"\x91\xff", shape, "shape at byte 2: got -1, want at least 0"},
		"65 dimensions":             {"\xdc\x00\x41" + strings.Repeat("\x01", 65), shape, "shape at byte 3: got 65, want at most 64 dimensions"},
		"payload, short":            {"\xd4\x03a", payload(2), "part at byte 3: got 1, want 2 bytes by dtype and shape"},
		"payload, no frame":         {"\x01", payload(1), "part at byte 1: got 1, want the index of one of 0 frames"},
		"payload, frame 0":          {"\x00", payload(1), "part at byte 1: got 0, want the index of one of 0 frames"},
		"payload, a float":          {"\xca\x00\x00\x00\x00", payload(1), "part at byte 0: got a float, want raw bytes or the index of a frame"},
		"payload, bytes":            {"\xc4\x01a", payload(1), "part at byte 0: got bytes, want raw bytes or the index of a frame"},
		"object, key missing":       {"\x81\xa1b\x02", object, `part at byte 4: got none, want the key "a"`},
		"object, key twice":         {"\x82\xa1a\x02\xa1a\x02", object, `part at byte 6: got "a" twice, want each key once`},
		"object, unknown key twice": {"\x83\xa1a\x02\xa1x\x02\xa1x\x02", object, `got "x" twice, want each key once`},
		"object, number as key":     {"\x81\x01\x01", object, "part at byte 1: got an integer, want a string"},
		"object, wrong value":       {"\x81\xa1a\xc0", object, "a at byte 3: got nil, want an integer"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := codec.Decode([][]byte{[]byte(c.doc)}, c.read)
			requireCorrupt(t, err, c.want)
		})
	}
	_, err := codec.Decode(nil, integer)
	requireCorrupt(t, err, "frames: got none, want a main document")
	_, _, err = codec.DecodePart(nil, 0, integer)
	requireCorrupt(t, err, "frames: got none, want a main document")
	_, _, err = codec.DecodePart([][]byte{{1}}, 2, integer)
	requireCorrupt(t, err, "main document at byte 2: got offset is outside the document, want a MessagePack value")
	_, _, err = codec.DecodePart([][]byte{{1}}, -1, integer)
	requireCorrupt(t, err, "got offset is outside the document")
	_, _, err = codec.DecodePart([][]byte{[]byte("\xc0\x92\x01\x02\xc0")}, 1, array)
	requireCorrupt(t, err, "value at byte 2: got 2 more bytes, want its end")
}

func requireCorrupt(t testing.TB, err error, text string) {
	t.Helper()
	require.ErrorIs(t, err, codec.ErrCorrupt)
	require.ErrorContains(t, err, text)
	require.ErrorContains(t, err, "serde: corrupt ")
	require.NotContains(t, err.Error(), "%!")
}

// TestDecoderRefusesWhatItNeverDoes: the reason is no damage, and the text names what to do.
func TestDecoderRefusesWhatItNeverDoes(t *testing.T) {
	for name, c := range map[string]struct {
		doc  string
		read reader
		want string
	}{
		"pickle":             {"\xd4\x01a", payload(1), "serde: part holds a pickle (extension 1), which is never executed; run the peer without VLLM_ALLOW_INSECURE_SERIALIZATION"},
		"cloudpickle":        {"\xd4\x02a", payload(1), "serde: part holds a pickle (extension 2), which is never executed"},
		"unknown extension":  {"\xd4\x04a", payload(1), "serde: part holds data of the unknown extension 4; check that the peer is a known vLLM"},
		"out of band":        {"\x80", payload(1), "serde: part was sent out of band, which only Python peers can do; run the engine with mm_tensor_ipc=direct_rpc"},
		"pickle for bytes":   {"\xd4\x01a", bytes, "serde: part holds the extension 1, which is never executed"},
		"negative extension": {"\xd4\xffa", bytes, "serde: part holds the extension -1, which is never executed"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := codec.Decode([][]byte{[]byte(c.doc)}, c.read)
			require.ErrorIs(t, err, codec.ErrUnsupported)
			require.NotErrorIs(t, err, codec.ErrCorrupt)
			require.ErrorContains(t, err, c.want)
		})
	}
}

// TestErrorsNameTheElem as long as one is read.
func TestErrorsNameTheElem(t *testing.T) {
	_, err := codec.Decode([][]byte{{0x01}}, func(d *codec.Decoder) (any, error) {
		d.Elem = "pixel_values"
		return d.Text("data")
	})
	requireCorrupt(t, err, `data of elem "pixel_values" at byte 0: got an integer, want a string`)
}

// TestPeek: every first byte of MessagePack has its kind.
func TestPeek(t *testing.T) {
	kinds := map[codec.Kind]string{
		codec.KindInt: "\x00\x7f\xe0\xff\xcc\xcd\xce\xcf\xd0\xd1\xd2\xd3", codec.KindStr: "\xa0\xbf\xd9\xda\xdb", codec.KindArray: "\x90\x9f\xdc\xdd",
		codec.KindMap: "\x80\x8f\xde\xdf", codec.KindNil: "\xc0", codec.KindBool: "\xc2\xc3", codec.KindFloat: "\xca\xcb", codec.KindBin: "\xc4\xc5\xc6",
		codec.KindExt: "\xc7\xc8\xc9\xd4\xd5\xd6\xd7\xd8", codec.KindNone: "\xc1",
	}
	for kind, codes := range kinds {
		for i := range len(codes) {
			_, _ = codec.DecodeUnguarded([][]byte{{codes[i]}}, func(d *codec.Decoder) (any, error) {
				require.Equal(t, kind, d.Peek(), "%#x", codes[i])
				require.Zero(t, d.Pos(), "a look takes nothing")
				return nil, nil
			})
		}
	}
	_, err := codec.DecodeUnguarded([][]byte{{}}, func(d *codec.Decoder) (any, error) { return d.Peek(), nil })
	require.NoError(t, err)
}
