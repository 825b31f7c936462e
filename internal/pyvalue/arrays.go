package pyvalue

import (
	"fmt"
	"strings"

	"github.com/ringcache/ringcache/internal/codec"
	"github.com/ringcache/ringcache/serde"
)

// WriteTensor writes a tensor, which must have its data.
func WriteTensor(e *codec.Encoder, t *serde.Tensor) {
	n, err := t.NBytes()
	switch {
	case err != nil:
		e.Fail(err)
	case t.Data == nil && n > 0:
		e.Invalid("tensor", "it has no Data; only NewPlan takes layouts")
	case len(t.Data) != n:
		e.Invalid("tensor", "%s %v takes %d bytes, Data has %d", t.DType, t.Shape, n, len(t.Data))
	default:
		e.Head(string(t.DType), t.Shape)
		e.Payload(t.Data, n, false)
	}
}

// WriteNDArray writes a numpy array.
func WriteNDArray(e *codec.Encoder, a *serde.NDArray) {
	n, err := a.NBytes()
	switch {
	case err != nil:
		e.Fail(err)
	case len(a.Data) != n:
		e.Invalid("ndarray", "%s %v takes %d bytes, Data has %d", a.DType, a.Shape, n, len(a.Data))
	default:
		e.Head(a.DType, a.Shape)
		// A 0-d array lies inline whatever its size.
		e.Payload(a.Data, n, len(a.Shape) == 0)
	}
}

// ReadTensor reads a tensor, which is a view of the message.
func ReadTensor(d *codec.Decoder) (*serde.Tensor, error) {
	if err := d.ArrayOf(3, "tensor"); err != nil {
		return nil, err
	}
	name, err := d.TextView("dtype")
	if err != nil {
		return nil, err
	}
	dtype, known := torchDType(string(name))
	if !known {
		return nil, codec.UnknownDType(name)
	}
	t := &serde.Tensor{DType: dtype}
	if t.Shape, t.Data, err = d.Tensor(dtype.ItemSize()); err != nil {
		return nil, err
	}
	return t, nil
}

// ReadNDArray reads a numpy array, which is a view of the message.
func ReadNDArray(d *codec.Decoder) (*serde.NDArray, error) {
	if err := d.ArrayOf(3, "ndarray"); err != nil {
		return nil, err
	}
	name, err := d.Text("ndarray type")
	if err != nil {
		return nil, err
	}
	a := &serde.NDArray{DType: name}
	if a.Shape, err = d.Shape(); err != nil {
		return nil, err
	}
	want, err := a.NBytes()
	if err != nil {
		return nil, &codec.UnsupportedError{Text: fmt.Sprintf("serde: ndarray of type %.32q and shape %v is refused; "+
			"send numbers, bools or text that fit in memory", name, a.Shape)}
	}
	if a.Data, err = d.Payload("ndarray", want); err != nil {
		return nil, err
	}
	return a, nil
}

// torchDType is serde.ParseDType without the prefix "torch.", which no peer writes.
func torchDType(name string) (serde.DType, bool) {
	if strings.HasPrefix(name, "torch.") {
		return "", false
	}
	return serde.ParseDType(name)
}

// numpyType reports whether numpy prints a type so.
func numpyType(name string) bool {
	if name == "" || !strings.ContainsRune("<>|", rune(name[0])) {
		return false // as most text, for which no error need be made
	}
	_, err := (&serde.NDArray{DType: name}).NBytes()
	return err == nil
}
