package blend_test

import (
	"io/fs"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/blend"
	"github.com/ringcache/ringcache/blend/rope"
)

var shape = blend.Shape{Layers: 3, Heads: 2, HeadDim: 16, DType: rope.BF16}

func TestPlacesOfKV(t *testing.T) {
	kv, err := blend.New(shape, 5)
	require.NoError(t, err)
	require.Equal(t, 64, shape.Row())
	require.Len(t, kv.Bytes, 2*3*5*64)
	for layer := range 3 {
		kv.Keys(layer)[0], kv.Values(layer)[0] = byte(1+layer), byte(11+layer)
	}
	for plane := range 6 { // the keys of all layers, and then the values, as a chunk of LMCache
		require.Equal(t, byte(1+plane%3+plane/3*10), kv.Bytes[plane*5*64])
	}
	for _, tokens := range []int{-1, 4, 1 << 30} {
		_, err = blend.View(shape, tokens, kv.Bytes)
		require.ErrorIs(t, err, fs.ErrInvalid)
	}
	for _, s := range []blend.Shape{
		{}, {Layers: 1, Heads: 1 << 40, HeadDim: 1 << 40}, {Layers: 1, Heads: 1, HeadDim: 1, DType: 9},
	} {
		_, err = blend.New(s, 1)
		require.ErrorIs(t, err, fs.ErrInvalid)
	}
}

func TestReplace(t *testing.T) {
	size := shape.Row()
	dst, fresh := make([]byte, 6*size), make([]byte, 4*size)
	for i := range fresh {
		fresh[i] = byte(1 + i/size)
	}
	require.NoError(t, shape.Replace(dst, []int{1, 2, 3, 5}, fresh))
	for row, want := range []byte{0, 1, 2, 3, 0, 4} {
		for _, b := range dst[row*size : (row+1)*size] {
			require.Equal(t, want, b, "row %d", row)
		}
	}
	require.ErrorIs(t, shape.Replace(dst, []int{3, 4, 5, 6}, fresh), fs.ErrInvalid)
	require.ErrorIs(t, shape.Replace(dst, []int{-1, 0, 1, 2}, fresh), fs.ErrInvalid)
	require.ErrorIs(t, shape.Replace(dst, []int{1}, fresh), fs.ErrInvalid)
	require.NoError(t, shape.Replace(dst, nil, nil))
}

// TestRowsWhosePlaceOverflowsAreRefused: 1<<58 rows of 64 bytes are 0 in 64 bits, so they were row 0.
func TestRowsWhosePlaceOverflowsAreRefused(t *testing.T) {
	size := shape.Row()
	dst, fresh := make([]byte, 6*size), make([]byte, size)
	fresh[0] = 1
	for _, row := range []int{1 << 58, 1 << 62, math.MaxInt, math.MinInt} {
		require.ErrorIs(t, shape.Replace(dst, []int{row}, fresh), fs.ErrInvalid)
	}
	require.Equal(t, make([]byte, 6*size), dst)
	require.ErrorIs(t, blend.Shape{}.Replace(dst, []int{-1}, nil), fs.ErrInvalid, "rows of no bytes")
}

func TestWhatCannotBeMovedIsRefused(t *testing.T) {
	table, err := rope.New(rope.Config{HeadDim: 16})
	require.NoError(t, err)
	dst, err := blend.New(shape, 10)
	require.NoError(t, err)
	small, err := blend.New(shape, 4)
	require.NoError(t, err)
	for _, at := range []int{-1, 7} {
		_, err = blend.NewMove(table, dst, at, blend.Chunk{KV: small})
		require.ErrorIs(t, err, fs.ErrInvalid)
	}
	other := shape
	other.DType = rope.F16
	wrong, err := blend.New(other, 4)
	require.NoError(t, err)
	_, err = blend.NewMove(table, dst, 0, blend.Chunk{KV: wrong})
	require.ErrorIs(t, err, fs.ErrInvalid)
	_, err = blend.NewMove(table, dst, 0, blend.Chunk{KV: small, Position: -1})
	require.ErrorIs(t, err, fs.ErrInvalid)
	wide, err := rope.New(rope.Config{HeadDim: 32})
	require.NoError(t, err)
	_, err = blend.NewMove(wide, dst, 0, blend.Chunk{KV: small})
	require.ErrorIs(t, err, fs.ErrInvalid)
	short := small
	short.Bytes = small.Bytes[:100]
	_, err = blend.NewMove(table, dst, 0, blend.Chunk{KV: short})
	require.ErrorIs(t, err, fs.ErrInvalid, "else a goroutine of MoveAll panics")
	_, err = blend.NewMove(table, short, 0, blend.Chunk{KV: small})
	require.ErrorIs(t, err, fs.ErrInvalid)
	move, err := blend.NewMove(table, dst, 6, blend.Chunk{KV: small})
	require.NoError(t, err)
	require.ErrorIs(t, move.Layer(3), fs.ErrInvalid)
	require.ErrorIs(t, move.Layer(-1), fs.ErrInvalid)
	require.NoError(t, blend.MoveAll(nil, 0))
}

// TestNumberOfWorkersDoesNotMatter: every layer is moved once, whoever does it.
func TestNumberOfWorkersDoesNotMatter(t *testing.T) {
	table, err := rope.New(rope.Config{HeadDim: 16})
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(1, 1))
	chunk, err := blend.New(shape, 4)
	require.NoError(t, err)
	for i := range chunk.Bytes {
		chunk.Bytes[i] = byte(r.Uint32N(128)) // finite numbers
	}
	var want []byte
	for workers := range 5 {
		dst, err := blend.New(shape, 20)
		require.NoError(t, err)
		var moves []*blend.Move
		for _, at := range []int{1, 7, 16} {
			move, err := blend.NewMove(table, dst, at, blend.Chunk{KV: chunk, Position: 5})
			require.NoError(t, err)
			moves = append(moves, move)
		}
		require.NoError(t, blend.MoveAll(moves, workers))
		if want == nil {
			want = dst.Bytes
		}
		require.Equal(t, want, dst.Bytes)
	}
}

// TestChunksOfNoTokensAndOfOne are moved as any other.
func TestChunksOfNoTokensAndOfOne(t *testing.T) {
	table, err := rope.New(rope.Config{HeadDim: 16})
	require.NoError(t, err)
	for tokens := range 2 {
		for _, unrotated := range []bool{false, true} {
			kv, err := blend.New(shape, tokens)
			require.NoError(t, err)
			for i := range kv.Bytes {
				kv.Bytes[i] = byte(i % 64)
			}
			for _, at := range []int{0, 3 - tokens, 3} {
				dst, err := blend.New(shape, 3)
				require.NoError(t, err)
				move, err := blend.NewMove(table, dst, at, blend.Chunk{KV: kv, Unrotated: unrotated})
				if at+tokens > 3 {
					require.ErrorIs(t, err, fs.ErrInvalid)
					continue
				}
				require.NoError(t, err)
				require.NoError(t, blend.MoveAll([]*blend.Move{move}, -1))
				require.Equal(t, kv.Values(2), dst.Values(2)[at*shape.Row():(at+tokens)*shape.Row()])
			}
		}
	}
}
