package codec_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/corpus"
	"github.com/ringcache/ringcache/internal/alloctest"
	"github.com/ringcache/ringcache/internal/codec"
)

// script reads a document by a list of calls, one for each byte: the same documents
// are so read in ways that they were not made for.
func script(calls []byte) reader {
	return func(d *codec.Decoder) (any, error) {
		var err error
		for _, c := range calls {
			at := d.Pos()
			switch c % 20 {
			case 0:
				_, err = d.Array("x")
			case 1:
				_, err = d.Map("x")
			case 2:
				_, err = d.Integer("x")
			case 3:
				_, err = d.Uint64("x")
			case 4:
				_, err = d.Uint32("x")
			case 5:
				_, err = d.Float("x")
			case 6:
				_, err = d.Bool("x")
			case 7:
				_, err = d.Text("x")
			case 8:
				_, err = d.TextView("x")
			case 9:
				_, err = d.Bytes("x")
			case 10:
				_, err = d.Texts("x")
			case 11:
				_, err = d.Tokens("x")
			case 12:
				_, err = d.Bools("x")
			case 13:
				_, err = d.TextMap("x")
			case 14:
				_, _, err = d.Tensor(4)
			case 15:
				_, err = d.Payload("x", int(c))
			case 16:
				err = d.Skip("x")
			case 17:
				d.Nil()
			case 18:
				err = d.Object("x", nil, func(string) (bool, error) { return false, nil })
			case 19:
				_, err = d.Part("x", func() error { _, err := d.Tokens("x"); return err })
			}
			if d.Pos() < at {
				return nil, fmt.Errorf("call %d went back from %d to %d", c%20, at, d.Pos())
			}
			if err != nil {
				return nil, err
			}
		}
		return nil, nil
	}
}

// typed fails unless err is nil or one of the kinds of this package.
func typed(t interface {
	Fatalf(format string, args ...any)
}, err error,
) {
	if err != nil && !errors.Is(err, codec.ErrCorrupt) && !errors.Is(err, codec.ErrUnsupported) {
		t.Fatalf("untyped error: %v", err)
	}
}

// FuzzDecode: no document and no order of calls panics, and every failure is an
// error of this package, with the guard and without, as if the document had changed.
func FuzzDecode(f *testing.F) {
	corpus.Add(f, "msgpack")
	f.Add([]byte("\x93\xa5uint8\x91\x02\xd5\x03ab"), []byte{0, 7, 14})
	f.Add([]byte("\x81\xa1a\xa1b"), []byte{13})
	f.Add([]byte("\x92\x91\x01\xcb\x3f\xf8\x00\x00\x00\x00\x00\x00"), []byte{0, 11, 5})
	f.Add([]byte("\xdd\xff\xff\xff\xff"), []byte{10})
	f.Add([]byte("\xc9\xff\xff\xff\xff\x03"), []byte{9})
	f.Add([]byte("\x92\x01\x01"), []byte{0, 255, 255})
	f.Fuzz(func(t *testing.T, doc, calls []byte) {
		if len(calls) > 64 {
			calls = calls[:64]
		}
		frames := [][]byte{doc, make([]byte, 255), {}, nil}
		_, guarded := codec.Decode(frames, script(calls))
		typed(t, guarded)
		_, err := codec.DecodeUnguarded(frames, script(calls))
		typed(t, err)
		if guarded == nil && err != nil {
			t.Fatalf("only the guarded decoder accepts: %v", err)
		}
		for at := range min(len(doc), 4) {
			own := append([][]byte{}, frames...)
			_, end, err := codec.DecodePart(own, at, script(calls))
			typed(t, err)
			if err == nil && (end <= at || end > len(doc)) {
				t.Fatalf("a part from %d to %d of %d bytes", at, end, len(doc))
			}
		}
	})
}

// TestDeclaredLengthsAllocateNothing: five bytes that declare 2^32 of something are
// refused before anything is made for them, also without the guard.
func TestDeclaredLengthsAllocateNothing(t *testing.T) {
	reads := map[string]reader{
		"texts": texts, "tokens": of((*codec.Decoder).Tokens), "bools": of((*codec.Decoder).Bools), "map": of((*codec.Decoder).TextMap),
		"object": object, "text": of((*codec.Decoder).Text), "bytes": bytes, "shape": shape, "payload": payload(1 << 30),
		"skip": func(d *codec.Decoder) (any, error) { return nil, d.Skip("part") },
	}
	for _, head := range []string{"\xdd", "\xdf", "\xdb", "\xc6", "\xc9"} {
		for _, n := range []uint32{1 << 16, 1 << 25, 1 << 31, math.MaxUint32} {
			doc := append(binary.BigEndian.AppendUint32([]byte(head), n), 3)
			for name, read := range reads {
				for how, decode := range map[string]func([][]byte, func(*codec.Decoder) (any, error)) (any, error){"guarded": codec.Decode[any], "unguarded": codec.DecodeUnguarded[any]} {
					var err error
					got := alloctest.Bytes(func() { _, err = decode([][]byte{doc}, read) })
					require.Error(t, err, "%q %d as %s, %s", head, n, name, how)
					typed(t, err)
					require.Less(t, got, uint64(16<<10), "%q %d as %s, %s", head, n, name, how)
				}
			}
		}
	}
}

// TestNestedLengthsShareOneBudget: without the guard, the lengths of nested lists can't
// add up to more than the document.
func TestNestedLengthsShareOneBudget(t *testing.T) {
	d := []byte{}
	for range 200 {
		d = append(d, 0xdd, 0, 0, 0x10, 0) // 4096 elements
	}
	doc := append(d, make([]byte, 4096)...)
	_, err := codec.DecodeUnguarded([][]byte{doc}, func(d *codec.Decoder) (any, error) {
		total := 0
		for range 200 {
			n, err := d.Array("list")
			if err != nil {
				return nil, err
			}
			require.Equal(t, 4096, n)
			total += d.Room(n)
		}
		require.Equal(t, len(doc), total)
		require.Zero(t, d.Room(1))
		return nil, nil
	})
	requireCorrupt(t, err, "main document at byte 1000: got 4096 more bytes, want its end")
	require.Equal(t, 16, codec.Small(math.MaxInt))
	require.Equal(t, 3, codec.Small(3))
}

// TestDepth: a document may be as deep as values and the levels around them, and no
// deeper.
func TestDepth(t *testing.T) {
	const most = codec.MaxDepth + 16
	skip := func(d *codec.Decoder) (any, error) { return nil, d.Skip("part") }
	for _, level := range []string{"\x91", "\x81\xc0"} {
		_, err := codec.Decode([][]byte{[]byte(strings.Repeat(level, most) + "\xc0")}, skip)
		require.NoError(t, err)
		_, err = codec.Decode([][]byte{[]byte(strings.Repeat(level, most+1) + "\xc0")}, skip)
		requireCorrupt(t, err, fmt.Sprintf("got nested deeper than %d levels", most))
		_, err = codec.DecodeUnguarded([][]byte{[]byte(strings.Repeat(level, most+1) + "\xc0")}, skip)
		requireCorrupt(t, err, fmt.Sprintf("nested deeper than %d levels", most))
	}
}
