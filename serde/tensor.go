package serde

import (
	"fmt"
	"slices"

	"github.com/ringcache/ringcache/internal/shapes"
)

// MaxDims is the largest number of dimensions of a tensor or ndarray.
const MaxDims = shapes.MaxDims

// Tensor is a dense tensor: contiguous, row-major, little-endian.
//
// Data may be nil although NBytes is not 0; then the tensor is only laid out
// (see [Plan]). A Tensor from a decoder views the decoded bytes: its Data is
// valid as long as these are and must not be written to.
type Tensor struct {
	DType DType
	Shape []int // empty for a scalar tensor
	Data  []byte
}

func (*Tensor) typeName() string { return typeTensor }
func (*Tensor) isData()          {}

// NBytes returns the length in bytes that dtype and shape ask for. The error
// wraps [ErrInvalid].
func (t *Tensor) NBytes() (int, error) {
	size := t.DType.ItemSize()
	if size == 0 {
		return 0, &InvalidError{"tensor", fmt.Sprintf("dtype %q is none that torch prints; use ParseDType for aliases", t.DType)}
	}
	n, ok := shapes.Bytes(t.Shape, size)
	if !ok {
		return 0, &InvalidError{"tensor", fmt.Sprintf("shape %v has a negative dimension, more than %d or too many elements", t.Shape, MaxDims)}
	}
	return n, nil
}

// check returns NBytes and whether Data is there, in full.
func (t *Tensor) check() (n int, err error) {
	if n, err = t.NBytes(); err != nil {
		return 0, err
	}
	if t.Data != nil && len(t.Data) != n {
		return 0, &InvalidError{"tensor", fmt.Sprintf("%s %v takes %d bytes, Data has %d", t.DType, t.Shape, n, len(t.Data))}
	}
	return n, nil
}

func (t *Tensor) clone() *Tensor {
	c := &Tensor{DType: t.DType, Shape: slices.Clone(t.Shape)}
	if t.Data != nil {
		c.Data = append(make([]byte, 0, len(t.Data)), t.Data...)
	}
	return c
}

const maxInt = uint64(^uint(0) >> 1)
