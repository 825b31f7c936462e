package encoder

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"math"

	"github.com/ringcache/ringcache/internal/remotemetadata"
	"github.com/ringcache/ringcache/serde"
)

// LMCache's RemoteMetadata of one tensor (lmcache 0.5.6, lmcache/v1/protocol.py): 7 numbers of 4 bytes, little-endian.
const (
	lmcacheLength = 0  // bytes of the tensor
	lmcacheFormat = 4  // 7 for outputs of encoders
	lmcacheDType  = 8  // its number
	lmcacheShape  = 12 // four dimensions: tokens, width, 0, 0
	lmcacheSize   = 28

	lmcacheEncoder = 7
)

// LMCache returns the note of the same tensor in the layout of LMCache's Redis connector, which keeps outputs
// of encoders with two dimensions, tokens and width. Others, dtypes that LMCache has no number for, empty
// tensors, and tensors of 2 GiB or more, are an fs.ErrInvalid.
func (n Note) LMCache() ([]byte, error) {
	size, err := n.Size()
	if err != nil {
		return nil, err
	}
	number := remotemetadata.Number(string(n.DType))
	if number == 0 || len(n.Shape) != 2 || size == 0 || size > math.MaxInt32 {
		return nil, fmt.Errorf("encoder: LMCache has no output of an encoder of %v: %w", n, fs.ErrInvalid)
	}
	b := make([]byte, lmcacheSize)
	binary.LittleEndian.PutUint32(b[lmcacheLength:], uint32(size))
	binary.LittleEndian.PutUint32(b[lmcacheFormat:], lmcacheEncoder)
	binary.LittleEndian.PutUint32(b[lmcacheDType:], uint32(number))
	binary.LittleEndian.PutUint32(b[lmcacheShape:], uint32(n.Shape[0]))
	binary.LittleEndian.PutUint32(b[lmcacheShape+4:], uint32(n.Shape[1]))
	return b, nil
}

// ParseLMCacheNote is the reverse of LMCache. What is no note of one output of an encoder is an fs.ErrInvalid.
func ParseLMCacheNote(b []byte) (Note, error) {
	if len(b) != lmcacheSize {
		return Note{}, fmt.Errorf("encoder: LMCache's note of one tensor has %d bytes, not %d: %w",
			lmcacheSize, len(b), fs.ErrInvalid)
	}
	number := func(at int) uint32 { return binary.LittleEndian.Uint32(b[at:]) }
	dtype := serde.DType(remotemetadata.DType(number(lmcacheDType)))
	tokens, width := number(lmcacheShape), number(lmcacheShape+4)
	switch {
	case number(lmcacheFormat) != lmcacheEncoder:
		return Note{}, fmt.Errorf("encoder: LMCache's note is of the format %d, not of an output of an encoder: %w",
			number(lmcacheFormat), fs.ErrInvalid)
	case dtype == "" || max(tokens, width) > math.MaxInt32 || number(lmcacheShape+8) != 0 ||
		number(lmcacheShape+12) != 0:
		return Note{}, fmt.Errorf("encoder: LMCache's note % x is of no output of an encoder: %w", b, fs.ErrInvalid)
	}
	n := Note{DType: dtype, Shape: []int{int(tokens), int(width)}}
	if size, err := n.Size(); err != nil || size == 0 || size != int64(number(lmcacheLength)) || size > math.MaxInt32 {
		return Note{}, fmt.Errorf("encoder: LMCache's note is of %v and %d bytes: %w",
			n, number(lmcacheLength), fs.ErrInvalid)
	}
	return n, nil
}
