package codec_test

import (
	stdbytes "bytes"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/fuzz/corpus"
	"github.com/ringcache/ringcache/internal/codec"
	"github.com/ringcache/ringcache/internal/msgpackguard"
)

// tokens reads a whole value by this package, as a list of what it consists of, each
// with the position behind it.
func tokens(d *codec.Decoder) (out []string, err error) {
	add := func(v any) { out = append(out, fmt.Sprintf("%d %T %v", d.Pos(), v, v)) }
	for left := 1; left > 0; left-- {
		switch k := d.Peek(); k {
		case codec.KindNil:
			d.Nil()
			add(nil)
		case codec.KindBool:
			var v bool
			v, err = d.Bool("x")
			add(v)
		case codec.KindInt:
			var v any
			v, err = d.Integer("x")
			add(v)
		case codec.KindFloat:
			var v float64
			v, err = d.Float("x")
			add(math.Float64bits(v))
		case codec.KindStr:
			var v []byte
			v, err = d.TextView("x")
			add(v)
		case codec.KindBin:
			var v []byte
			v, err = d.Bytes("x")
			add(v)
		case codec.KindExt:
			err = d.Skip("x")
			add("extension")
		case codec.KindArray, codec.KindMap:
			var n int
			if k == codec.KindArray {
				n, err = d.Array("x")
			} else {
				n, err = d.Map("x")
				n *= 2
			}
			left += n
			add(n)
		default:
			return nil, d.Corrupt("x", "a value", k.String())
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// tokensV5 is tokens by the streaming decoder of msgpack/v5.
func tokensV5(doc []byte) (out []string, err error) {
	r := stdbytes.NewReader(doc)
	mp := msgpack.NewDecoder(r)
	take := func(n int) []byte {
		b := make([]byte, max(n, 0))
		if _, e := r.Read(b); e != nil && n > 0 {
			err = e
		}
		return b
	}
	add := func(v any) { out = append(out, fmt.Sprintf("%d %T %v", len(doc)-r.Len(), v, v)) }
	for left := 1; left > 0; left-- {
		c, e := mp.PeekCode()
		if e != nil {
			return nil, e
		}
		var n int
		switch {
		case c == msgpcode.Nil:
			err = mp.DecodeNil()
			add(nil)
		case c == msgpcode.True, c == msgpcode.False:
			var v bool
			v, err = mp.DecodeBool()
			add(v)
		case c == msgpcode.Uint64:
			var v uint64
			if v, err = mp.DecodeUint64(); v > math.MaxInt64 {
				add(v)
			} else {
				add(int64(v))
			}
		case msgpcode.IsFixedNum(c), c >= msgpcode.Uint8 && c <= msgpcode.Int64:
			var v int64
			v, err = mp.DecodeInt64()
			add(v)
		case c == msgpcode.Float, c == msgpcode.Double:
			var v float64
			v, err = mp.DecodeFloat64()
			add(math.Float64bits(v))
		case msgpcode.IsString(c), msgpcode.IsBin(c):
			if n, err = mp.DecodeBytesLen(); err == nil {
				add(take(n))
			}
		case msgpcode.IsExt(c):
			if _, n, err = mp.DecodeExtHeader(); err == nil {
				take(n)
				add("extension")
			}
		case msgpcode.IsFixedArray(c), c == msgpcode.Array16, c == msgpcode.Array32:
			n, err = mp.DecodeArrayLen()
			left += n
			add(n)
		default:
			n, err = mp.DecodeMapLen()
			left += 2 * n
			add(2 * n)
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// sameTokens compares both readings of a document that the guard accepts.
func sameTokens(t require.TestingT, doc []byte) {
	if msgpackguard.Check(doc, msgpackguard.Limits{Depth: codec.MaxDepth}) != nil {
		return
	}
	want, err := tokensV5(doc)
	require.NoError(t, err)
	got, err := codec.Decode([][]byte{doc}, tokens)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// FuzzDifferential: what the guard accepts reads as by msgpack/v5, value by value.
func FuzzDifferential(f *testing.F) {
	for _, args := range corpus.Entries("msgpack") {
		f.Add(args[0].([]byte)) // the document, without the calls that read it
	}
	f.Add([]byte("\x93\xa5uint8\x91\x02\xd5\x03ab"))
	f.Add([]byte("\x97\xc4\x01a\xd1\x80\x00\xcf\xff\xff\xff\xff\xff\xff\xff\xff\xd9\x01a\xcb\x3f\xf8\x00\x00\x00\x00\x00\x00\xca\x3f\xc0\x00\x00\xc0"))
	f.Fuzz(func(t *testing.T, doc []byte) { sameTokens(t, doc) })
}

// borders are the integers around which the form of a number or a length changes.
func borders() (out []int64) {
	for _, b := range []int64{0, 15, 16, 31, 32, 1 << 7, 1 << 8, 1 << 15, 1 << 16, 1 << 31, 1 << 32, math.MaxInt64} {
		for d := int64(-2); d <= 1; d++ {
			out = append(out, b+d, -(b + d))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// TestDifferentialEncoding: each call writes the bytes of msgpack/v5, and they read the
// same in both ways.
func TestDifferentialEncoding(t *testing.T) {
	same := func(t require.TestingT, write func(*codec.Encoder), v5 func(*msgpack.Encoder) error) {
		var want stdbytes.Buffer
		require.NoError(t, v5(msgpack.NewEncoder(&want)))
		e := codec.NewEncoder(codec.DefaultThreshold)
		write(e)
		got, err := e.Document()
		require.NoError(t, err)
		require.Equal(t, want.Bytes(), got)
		sameTokens(t, got)
	}
	for _, n := range borders() {
		same(t, func(e *codec.Encoder) { e.Int(n) }, func(e *msgpack.Encoder) error { return e.EncodeInt(n) })
		same(t, func(e *codec.Encoder) { e.Uint(uint64(n)) }, func(e *msgpack.Encoder) error { return e.EncodeUint(uint64(n)) })
		if n < 0 || n > math.MaxUint32 {
			continue
		}
		same(t, func(e *codec.Encoder) { e.Array(int(n)) }, func(e *msgpack.Encoder) error { return e.EncodeArrayLen(int(n)) })
		same(t, func(e *codec.Encoder) { e.Map(int(n)) }, func(e *msgpack.Encoder) error { return e.EncodeMapLen(int(n)) })
		if n > 1<<20 {
			continue
		}
		data := make([]byte, n)
		same(t, func(e *codec.Encoder) { e.Bytes(data) }, func(e *msgpack.Encoder) error { return e.EncodeBytes(data) })
		same(t, func(e *codec.Encoder) { e.Text(string(data)) }, func(e *msgpack.Encoder) error { return e.EncodeString(string(data)) })
		for _, given := range [][]byte{data, nil} {
			same(t, func(e *codec.Encoder) { e.Payload(given, len(data), true) }, func(e *msgpack.Encoder) error {
				if err := e.EncodeExtHeader(3, len(data)); err != nil {
					return err
				}
				_, err := e.Writer().Write(data)
				return err
			})
		}
	}
	same(t, func(e *codec.Encoder) { e.Nil() }, (*msgpack.Encoder).EncodeNil)
	rapid.Check(t, func(t *rapid.T) {
		f, b := rapid.Float64().Draw(t, "float"), rapid.Bool().Draw(t, "bool")
		n, u := rapid.Int64().Draw(t, "int"), rapid.Uint64().Draw(t, "uint")
		s, list := rapid.String().Draw(t, "text"), rapid.SliceOf(rapid.Uint32()).Draw(t, "tokens")
		same(t, func(e *codec.Encoder) { e.Float(f) }, func(e *msgpack.Encoder) error { return e.EncodeFloat64(f) })
		same(t, func(e *codec.Encoder) { e.Bool(b) }, func(e *msgpack.Encoder) error { return e.EncodeBool(b) })
		same(t, func(e *codec.Encoder) { e.Int(n) }, func(e *msgpack.Encoder) error { return e.EncodeInt(n) })
		same(t, func(e *codec.Encoder) { e.Uint(u) }, func(e *msgpack.Encoder) error { return e.EncodeUint(u) })
		same(t, func(e *codec.Encoder) { e.Text(s) }, func(e *msgpack.Encoder) error { return e.EncodeString(s) })
		same(t, func(e *codec.Encoder) { e.Tokens(list) }, func(e *msgpack.Encoder) error {
			if err := e.EncodeArrayLen(len(list)); err != nil {
				return err
			}
			for _, x := range list {
				if err := e.EncodeUint(uint64(x)); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// TestPropertyDifferential: whole documents read the same.
func TestPropertyDifferential(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, frames := draw(t)
		sameTokens(t, frames[0])
	})
}
