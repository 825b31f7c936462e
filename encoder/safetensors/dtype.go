package safetensors

// DType names a type of elements as files spell it: "BF16".
type DType string

// Bits returns the number of bits of one element, 0 for a name that the format does not have.
func (d DType) Bits() int { return dtypes[d].bits }

type dtypeInfo struct {
	name DType // the table's own string, so that parsing allocates none
	bits int
	rank int // the library's order: by alignment, ascending
}

// The types of safetensors 0.8.0 in its order (enum Dtype of src/tensor.rs), which decides the
// order of tensors in a file.
var dtypes = func() map[DType]dtypeInfo {
	m := make(map[DType]dtypeInfo)
	for rank, t := range []dtypeInfo{
		{name: "BOOL", bits: 8},
		{name: "F4", bits: 4},
		{name: "F6_E2M3", bits: 6},
		{name: "F6_E3M2", bits: 6},
		{name: "U8", bits: 8},
		{name: "I8", bits: 8},
		{name: "F8_E5M2", bits: 8},
		{name: "F8_E4M3", bits: 8},
		{name: "F8_E8M0", bits: 8},
		{name: "F8_E4M3FNUZ", bits: 8},
		{name: "F8_E5M2FNUZ", bits: 8},
		{name: "I16", bits: 16},
		{name: "U16", bits: 16},
		{name: "F16", bits: 16},
		{name: "BF16", bits: 16},
		{name: "I32", bits: 32},
		{name: "U32", bits: 32},
		{name: "F32", bits: 32},
		{name: "C64", bits: 64},
		{name: "F64", bits: 64},
		{name: "I64", bits: 64},
		{name: "U64", bits: 64},
	} {
		t.rank = rank
		m[t.name] = t
	}
	return m
}()
