package serde

import "strings"

// DType names a torch dtype as torch prints it, without "torch.": "bfloat16". An
// encoder refuses a name that torch does not print; [ParseDType] takes the others.
type DType string

// ItemSize returns the number of bytes of one element, 0 for a name that torch
// does not print. Packed types count per stored byte, as torch's shape does.
func (d DType) ItemSize() int { return dtypes[string(d)].size }

// ParseDType returns the dtype of a name of torch, which may be an
// alias ("half", "long") or start with "torch.".
func ParseDType(name string) (DType, bool) {
	name = strings.TrimPrefix(name, "torch.")
	return lookupDType([]byte(name))
}

// lookupDType resolves a name or alias as torch does when a peer decodes it.
func lookupDType(name []byte) (DType, bool) {
	if d, ok := dtypes[string(name)]; ok {
		return d.name, true
	}
	d, ok := aliases[string(name)]
	return d, ok
}

type dtypeInfo struct {
	name DType // the table's own string, so that decoding allocates none
	size int
}

// All dtypes of torch 2.14, by size of an element.
var dtypes = func() map[string]dtypeInfo {
	m := make(map[string]dtypeInfo)
	for size, names := range map[int]string{
		1: "bool bits1x8 bits2x4 bits4x2 bits8 int1 int2 int3 int4 int5 int6 int7 int8 " +
			"uint1 uint2 uint3 uint4 uint5 uint6 uint7 uint8 qint8 quint8 quint4x2 quint2x4 " +
			"float4_e2m1fn_x2 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu",
		2:  "bfloat16 float16 bits16 int16 uint16",
		4:  "float32 int32 uint32 qint32 complex32 bcomplex32",
		8:  "float64 int64 uint64 complex64",
		16: "complex128",
	} {
		for _, n := range strings.Fields(names) {
			m[n] = dtypeInfo{DType(n), size}
		}
	}
	return m
}()

// Names that torch has besides those it prints. vLLM's decoder looks a dtype up
// by attribute, so that a peer may send them; no encoder produces them.
var aliases = map[string]DType{
	"half": "float16", "float": "float32", "double": "float64",
	"short": "int16", "int": "int32", "long": "int64",
	"chalf": "complex32", "cfloat": "complex64", "cdouble": "complex128",
}
