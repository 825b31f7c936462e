package codec_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/internal/codec"
)

// value is one of what the encoder writes and the decoder reads, and how.
type value struct {
	v     any
	write func(*codec.Encoder)
	read  reader
}

func drawValue(t *rapid.T, depth int) value {
	top := 11
	if depth == 0 {
		top = 9
	}
	switch rapid.IntRange(0, top).Draw(t, "kind") {
	case 0:
		return value{nil, func(e *codec.Encoder) { e.Nil() }, func(d *codec.Decoder) (any, error) {
			if !d.Nil() {
				return nil, d.Corrupt("value", "nil", d.Peek().String())
			}
			return nil, nil
		}}
	case 1:
		v := rapid.Bool().Draw(t, "bool")
		return value{v, func(e *codec.Encoder) { e.Bool(v) }, of((*codec.Decoder).Bool)}
	case 2:
		v := rapid.Int64().Draw(t, "int")
		return value{v, func(e *codec.Encoder) { e.Int(v) }, of((*codec.Decoder).Int64)}
	case 3:
		v := rapid.Uint64().Draw(t, "uint")
		return value{v, func(e *codec.Encoder) { e.Uint(v) }, of((*codec.Decoder).Uint64)}
	case 4:
		v := rapid.Float64().Draw(t, "float")
		return value{v, func(e *codec.Encoder) { e.Float(v) }, of((*codec.Decoder).Float)}
	case 5:
		v := rapid.String().Draw(t, "text")
		return value{v, func(e *codec.Encoder) { e.Text(v) }, of((*codec.Decoder).Text)}
	case 6:
		v := append([]byte{}, rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "bytes")...)
		return value{v, func(e *codec.Encoder) { e.Bytes(v) }, bytes}
	case 7:
		v := append([]uint32{}, rapid.SliceOf(rapid.Uint32()).Draw(t, "tokens")...)
		return value{v, func(e *codec.Encoder) { e.Tokens(v) }, of((*codec.Decoder).Tokens)}
	case 8:
		v := rapid.MapOfN(rapid.String(), rapid.String(), 0, 5).Draw(t, "map")
		return value{v, func(e *codec.Encoder) { e.TextMap(v) }, of((*codec.Decoder).TextMap)}
	case 9:
		v := make([]byte, rapid.IntRange(0, 600).Draw(t, "payload"))
		for i := range v {
			v[i] = byte(i * 7)
		}
		return value{v, func(e *codec.Encoder) { e.Payload(v, len(v), false) }, payload(len(v))}
	}
	parts := make([]value, rapid.IntRange(0, 4).Draw(t, "parts"))
	whole := make([]any, len(parts))
	for i := range parts {
		parts[i] = drawValue(t, depth-1)
		whole[i] = parts[i].v
	}
	return value{whole, func(e *codec.Encoder) {
		e.Array(len(parts))
		for _, p := range parts {
			p.write(e)
		}
	}, func(d *codec.Decoder) (any, error) {
		n, err := d.Array("parts")
		if err != nil {
			return nil, err
		}
		if n != len(parts) {
			return nil, d.Corrupt("parts", fmt.Sprint(len(parts)), fmt.Sprint(n))
		}
		out := make([]any, n)
		for i, p := range parts {
			if out[i], err = p.read(d); err != nil {
				return nil, err
			}
		}
		return out, nil
	}}
}

func draw(t *rapid.T) (value, [][]byte) {
	v := drawValue(t, 3)
	e := codec.NewEncoder(rapid.SampledFrom([]int{0, 1, 16, codec.DefaultThreshold}).Draw(t, "threshold"))
	v.write(e)
	frames, err := e.Frames()
	require.NoError(t, err)
	return v, frames
}

// TestPropertyRoundTrip: what is written is read, and written in the middle of
// something it is read there.
func TestPropertyRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v, frames := draw(t)
		got, err := codec.Decode(frames, v.read)
		require.NoError(t, err)
		require.Equal(t, v.v, got)

		e := codec.NewEncoder(codec.DefaultThreshold)
		e.Array(3)
		e.Payload(make([]byte, 300), 300, false)
		at := e.Len()
		e.Splice(func(frames [][]byte) ([][]byte, error) {
			sub := codec.Append(frames, codec.DefaultThreshold)
			v.write(sub)
			return sub.Frames()
		})
		end := e.Len()
		e.Nil()
		frames, err = e.Frames()
		require.NoError(t, err)
		own := append([][]byte{}, frames...)
		got, to, err := codec.DecodePart(own, at, v.read)
		require.NoError(t, err)
		require.Equal(t, v.v, got)
		require.Equal(t, end, to)
		require.NotNil(t, own[1], "a part takes only its own frames")
		for _, f := range own[2:] {
			require.Nil(t, f)
		}
	})
}

// TestPropertyTruncated: a document that ends too soon at any byte is refused, with the
// guard and without.
func TestPropertyTruncated(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v, frames := draw(t)
		doc := frames[0]
		for n := range doc {
			cut := append([][]byte{doc[:n:n]}, frames[1:]...)
			_, err := codec.Decode(cut, v.read)
			require.ErrorIs(t, err, codec.ErrCorrupt)
			require.ErrorContains(t, err, "corrupt main document at byte")
			_, err = codec.DecodeUnguarded(cut, v.read)
			require.ErrorIs(t, err, codec.ErrCorrupt, "%d of %d bytes", n, len(doc))
		}
	})
}

// TestPropertyBitFlips: a changed bit is read as something else or refused, and never
// worse.
func TestPropertyBitFlips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v, frames := draw(t)
		own := append([]byte{}, frames[0]...)
		for bit := range 8 * min(len(own), 64) {
			own[bit/8] ^= 1 << (bit % 8)
			_, err := codec.Decode(append([][]byte{own}, frames[1:]...), v.read)
			typed(t, err)
			_, err = codec.DecodeUnguarded(append([][]byte{own}, frames[1:]...), v.read)
			typed(t, err)
			own[bit/8] ^= 1 << (bit % 8)
		}
	})
}
