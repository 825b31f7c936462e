package serde

import (
	"fmt"
	"slices"

	"github.com/ringcache/ringcache/internal/codec"
	"github.com/ringcache/ringcache/internal/shapes"
)

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

// NBytes returns the length in bytes that dtype and shape ask for. The error
// wraps [fs.ErrInvalid].
func (t *Tensor) NBytes() (int, error) {
	n, problem := t.size()
	if problem != "" {
		return 0, &codec.InvalidError{What: "tensor", Problem: problem}
	}
	return n, nil
}

func (t *Tensor) size() (n int, problem string) {
	size := t.DType.ItemSize()
	if size == 0 {
		return 0, fmt.Sprintf("dtype %q is none that torch prints; use ParseDType for aliases", t.DType)
	}
	n, ok := shapes.Bytes(t.Shape, size)
	if !ok {
		return 0, fmt.Sprintf("shape %v has a negative dimension, more than %d or too many elements",
			t.Shape, codec.MaxDims)
	}
	return n, ""
}

// check returns the size, and a problem also where Data is there and not of that size.
func (t *Tensor) check() (n int, problem string) {
	n, problem = t.size()
	if problem == "" && t.Data != nil && len(t.Data) != n {
		problem = fmt.Sprintf("%s %v takes %d bytes, Data has %d", t.DType, t.Shape, n, len(t.Data))
	}
	return n, problem
}

func (t *Tensor) clone() *Tensor {
	c := &Tensor{DType: t.DType, Shape: slices.Clone(t.Shape)}
	if t.Data != nil {
		c.Data = append(make([]byte, 0, len(t.Data)), t.Data...)
	}
	return c
}
