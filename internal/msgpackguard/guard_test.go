package msgpackguard

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"
)

func TestCheckAccepts(t *testing.T) {
	for name, doc := range map[string]string{
		"fixint":      "\x7f",
		"negative":    "\xe0",
		"nil":         "\xc0",
		"bool":        "\xc3",
		"integers":    "\x98\xcc\x01\xcd\x01\x02\xce\x01\x02\x03\x04\xcf\x01\x02\x03\x04\x05\x06\x07\x08\xd0\x01\xd1\x01\x02\xd2\x01\x02\x03\x04\xd3\x01\x02\x03\x04\x05\x06\x07\x08",
		"floats":      "\x92\xca\x01\x02\x03\x04\xcb\x01\x02\x03\x04\x05\x06\x07\x08",
		"strings":     "\x94\xa1a\xd9\x01a\xda\x00\x01a\xdb\x00\x00\x00\x01a",
		"bytes":       "\x93\xc4\x01a\xc5\x00\x01a\xc6\x00\x00\x00\x01a",
		"extensions":  "\x98\xd4\x01a\xd5\x01ab\xd6\x01abcd\xd7\x01abcdefgh\xd8\x01abcdefghabcdefgh\xc7\x01\x01a\xc8\x00\x01\x01a\xc9\x00\x00\x00\x01\x01a",
		"empty ext":   "\xc7\x00\x03",
		"arrays":      "\x93\x91\x01\xdc\x00\x01\x01\xdd\x00\x00\x00\x01\x01",
		"maps":        "\x93\x81\x01\x02\xde\x00\x01\x01\x02\xdf\x00\x00\x00\x01\x01\x02",
		"empty":       "\x94\x80\x90\xa0\xc4\x00",
		"deep enough": strings.Repeat("\x91", 10) + "\x01",
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, Check([]byte(doc), Limits{Depth: 10}))
			for n := range doc {
				var cut *Error
				require.ErrorAs(t, Check([]byte(doc[:n]), Limits{Depth: 10}), &cut, "cut to %d", n)
				require.LessOrEqual(t, cut.Offset, n)
			}
			requireError(t, Check([]byte(doc+"\x00"), Limits{Depth: 10}), Error{len(doc), "1 bytes follow the document"})
			end, err := Next([]byte("\x00"+doc+"\x00"), 1, Limits{})
			require.NoError(t, err)
			require.Equal(t, 1+len(doc), end)
		})
	}
}

func TestCheckRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		doc  string
		want Error
	}{
		"array bomb":    {"\xdd\x02\x00\x00\x00", Error{0, "declares 33554432 values, 0 bytes are left for them and 0 others"}},
		"map bomb":      {"\xdf\xff\xff\xff\xff\x00\x00", Error{0, "declares 8589934590 values, 2 bytes are left for them and 0 others"}},
		"string bomb":   {"\xdb\xff\xff\xff\xff\x00\x00", Error{0, "declares 4294967295 bytes, 2 are left"}},
		"bin bomb":      {"\xc6\xff\xff\xff\xff\x00\x00", Error{0, "declares 4294967295 bytes, 2 are left"}},
		"ext bomb":      {"\xc9\xff\xff\xff\xff\x03\x00\x00", Error{0, "declares 4294967295 bytes, 2 are left"}},
		"never used":    {"\xc1", Error{0, "byte 0xc1 is no MessagePack type"}},
		"too deep":      {strings.Repeat("\x91", 11) + "\x01", Error{10, "nested deeper than 10 levels"}},
		"shared budget": {"\x92\xdc\x00\x03\x01\x02\x03", Error{1, "declares 3 values, 3 bytes are left for them and 1 others"}}, // the inner three use up what the outer needs
	} {
		t.Run(name, func(t *testing.T) {
			requireError(t, Check([]byte(c.doc), Limits{Depth: 10}), c.want)
		})
	}
	requireError(t, Check([]byte(strings.Repeat("\x91", MaxDepth+1)+"\x01"), Limits{Depth: 1000}), Error{MaxDepth, fmt.Sprintf("nested deeper than %d levels", MaxDepth)})
	for _, off := range []int{2, -1} {
		_, err := Next([]byte("\x01"), off, Limits{})
		require.ErrorContains(t, err, "offset", "%d", off)
	}
}

func requireError(t *testing.T, err error, want Error) {
	t.Helper()
	var got *Error
	require.ErrorAs(t, err, &got)
	require.Equal(t, want, *got)
}

func TestCheckDoesNotAllocate(t *testing.T) {
	doc := []byte("\x82\xa1x\x93\x01\x02\x03\xa1y\x80")
	require.Zero(t, testing.AllocsPerRun(100, func() { _ = Check(doc, Limits{}) }))
}

// walk reads one value by the msgpack decoder's streaming calls and fails when
// it is asked for more than there is.
func walk(t *testing.T, d *msgpack.Decoder, r *bytes.Reader, depth int) {
	left := func(n int) {
		if n < 0 || n > r.Len() {
			t.Fatalf("a length of %d with %d bytes left passed the guard", n, r.Len())
		}
	}
	seek := func(n int) {
		left(n)
		_, err := r.Seek(int64(n), io.SeekCurrent)
		require.NoError(t, err)
	}
	require.LessOrEqual(t, depth, MaxDepth)
	c, err := d.PeekCode()
	require.NoError(t, err)
	switch {
	case c >= 0x80 && c < 0x90, c == 0xde, c == 0xdf:
		n, err := d.DecodeMapLen()
		require.NoError(t, err)
		left(2 * n)
		for range 2 * n {
			walk(t, d, r, depth+1)
		}
	case c >= 0x90 && c < 0xa0, c == 0xdc, c == 0xdd:
		n, err := d.DecodeArrayLen()
		require.NoError(t, err)
		left(n)
		for range n {
			walk(t, d, r, depth+1)
		}
	case c >= 0xa0 && c < 0xc0, c >= 0xd9 && c <= 0xdb, c >= 0xc4 && c <= 0xc6:
		n, err := d.DecodeBytesLen()
		require.NoError(t, err)
		seek(n)
	case c >= 0xc7 && c <= 0xc9, c >= 0xd4 && c <= 0xd8:
		_, n, err := d.DecodeExtHeader()
		require.NoError(t, err)
		seek(n)
	default:
		require.NoError(t, d.Skip())
	}
}

// FuzzGuard: what passes the guard can be walked by the msgpack decoder without
// a length beyond the bytes that are left, and ends where the guard ends.
func FuzzGuard(f *testing.F) {
	f.Add([]byte("\x82\xa1x\x93\x01\x02\x03\xa1y\x80"))
	f.Add([]byte("\xdd\x02\x00\x00\x00"))
	f.Add([]byte("\xc9\x00\x00\x00\x01\x03a"))
	f.Add([]byte("\x94\xd8\x01abcdefghabcdefgh\xdb\x00\x00\x00\x01a\xcb\x01\x02\x03\x04\x05\x06\x07\x08\xde\x00\x01\xc0\xc2"))
	f.Fuzz(func(t *testing.T, doc []byte) {
		end, err := Next(doc, 0, Limits{})
		if err != nil {
			var ge *Error
			if !errors.As(err, &ge) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		r := bytes.NewReader(doc)
		d := msgpack.NewDecoder(r)
		walk(t, d, r, 0)
		require.Equal(t, end, len(doc)-r.Len())
		require.Equal(t, end == len(doc), Check(doc, Limits{}) == nil)
	})
}
