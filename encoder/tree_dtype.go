package encoder

import (
	"slices"

	"github.com/ringcache/ringcache/encoder/safetensors"
	"github.com/ringcache/ringcache/serde"
)

// fileTypes are the dtypes of torch that safetensors 0.8.0 writes and loads (safetensors/torch.py).
var fileTypes = map[serde.DType]safetensors.DType{
	"bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "uint32": "U32", "int32": "I32",
	"uint64": "U64", "int64": "I64", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64",
	"complex64": "C64", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e4m3fnuz": "F8_E4M3FNUZ",
	"float8_e5m2fnuz": "F8_E5M2FNUZ", "float8_e8m0fnu": "F8_E8M0", packedType: "F4",
}

var torchTypes = func() map[safetensors.DType]serde.DType {
	m := make(map[safetensors.DType]serde.DType, len(fileTypes))
	for torch, file := range fileTypes {
		m[file] = torch
	}
	return m
}()

// packedType has two elements in a byte: torch counts bytes in the last dimension, files count elements.
const packedType = "float4_e2m1fn_x2"

// inFile returns type and shape as a file has them. ok is false for what no file can have.
func (n Note) inFile() (_ safetensors.DType, shape []int, ok bool) {
	d, ok := fileTypes[n.DType]
	if !ok || n.DType != packedType {
		return d, n.Shape, ok
	}
	last := len(n.Shape) - 1
	if last < 0 {
		return "", nil, false
	}
	shape = slices.Clone(n.Shape)
	shape[last] *= 2 // what overflows is negative, and no dimension of a file
	return d, shape, true
}

// noteOfFile is the reverse of inFile.
func noteOfFile(d safetensors.DType, shape []int) (n Note, ok bool) {
	n.DType, ok = torchTypes[d]
	n.Shape = shape
	if !ok || n.DType != packedType {
		return n, ok
	}
	last := len(shape) - 1
	if last < 0 || shape[last]%2 != 0 {
		return Note{}, false
	}
	n.Shape = slices.Clone(shape)
	n.Shape[last] /= 2
	return n, true
}
