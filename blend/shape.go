package blend

import (
	"fmt"
	"io/fs"

	"github.com/ringcache/ringcache/blend/rope"
)

// A Shape is what the keys and values of a token are, in all layers: with as many heads as queries have, or
// fewer (grouped-query attention).
type Shape struct {
	Layers  int        `json:"layers"`
	Heads   int        `json:"heads"` // of keys, which values have, too
	HeadDim int        `json:"head_dim"`
	DType   rope.DType `json:"dtype"`
}

const (
	maxLayers = 1 << 12
	maxWidth  = 1 << 20 // elements of a row
	maxTokens = 1 << 24
)

func invalid(format string, args ...any) error {
	return fmt.Errorf("blend: "+format+": %w", append(args, fs.ErrInvalid)...)
}

// Validate reports what is wrong with a shape.
func (s Shape) Validate() error {
	switch {
	case s.Layers < 1 || s.Layers > maxLayers:
		return invalid("%d layers; 1 to %d are possible", s.Layers, maxLayers)
	case s.Heads < 1 || s.HeadDim < 1 || s.Heads > maxWidth/s.HeadDim:
		return invalid("%d heads of %d elements; there is one at least, and %d elements at most",
			s.Heads, s.HeadDim, maxWidth)
	case s.DType.Size() == 0:
		return invalid("no dtype %d", s.DType)
	}
	return nil
}

// Row returns the bytes of the keys, or the values, of a token in a layer.
func (s Shape) Row() int { return s.Heads * s.HeadDim * s.DType.Size() }

// Bytes returns the bytes of the keys and values of tokens.
func (s Shape) Bytes(tokens int) int64 { return 2 * int64(s.Layers) * int64(tokens) * int64(s.Row()) }

// KV is the keys and values of tokens.
type KV struct {
	Shape
	Tokens int
	// Bytes are the keys of all layers and then the values, in each layer those of its tokens, in each token
	// its heads: as LMCache stores a chunk (KV_2LTD), and a [kv.Group] of two planes.
	Bytes []byte
}

// View returns bytes as KV, without a copy.
func View(s Shape, tokens int, bytes []byte) (KV, error) {
	if err := s.Validate(); err != nil {
		return KV{}, err
	}
	if tokens < 0 || tokens > maxTokens || int64(len(bytes)) != s.Bytes(tokens) {
		return KV{}, invalid("%d bytes for the KV of %d tokens, which has %d", len(bytes), tokens, s.Bytes(tokens))
	}
	return KV{s, tokens, bytes}, nil
}

// New returns KV of zeros.
func New(s Shape, tokens int) (KV, error) {
	if err := s.Validate(); err != nil {
		return KV{}, err
	}
	if tokens < 0 || tokens > maxTokens {
		return KV{}, invalid("%d tokens; 0 to %d are possible", tokens, maxTokens)
	}
	return View(s, tokens, make([]byte, s.Bytes(tokens)))
}

// Keys returns the keys of a layer, one row for each token.
func (kv KV) Keys(layer int) []byte { return kv.plane(layer) }

// Values returns the values of a layer, one row for each token.
func (kv KV) Values(layer int) []byte { return kv.plane(kv.Layers + layer) }

func (kv KV) plane(i int) []byte {
	size := kv.Tokens * kv.Row()
	return kv.Bytes[i*size : (i+1)*size : (i+1)*size]
}

// Replace copies rows into those of dst with the numbers rows: what was computed anew into what was reused.
// Both are the keys, or the values, of a layer; fresh has one row for each number.
func (s Shape) Replace(dst []byte, rows []int, fresh []byte) error {
	size := s.Row()
	if size < 1 || len(fresh) != len(rows)*size {
		return invalid("%d bytes of %d rows of %d bytes", len(fresh), len(rows), size)
	}
	for i := 0; i < len(rows); {
		n := 1 // rows that lie beside each other are one copy
		for i+n < len(rows) && rows[i+n] == rows[i]+n {
			n++
		}
		if rows[i] < 0 || rows[i] > len(dst)/size-n {
			return invalid("%d rows from %d on, of %d", n, rows[i], len(dst)/size)
		}
		copy(dst[rows[i]*size:], fresh[i*size:(i+n)*size])
		i += n
	}
	return nil
}
