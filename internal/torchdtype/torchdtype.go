// Package torchdtype is the table of the dtypes that LMCache has keys for (lmcache/utils.py of 0.5.6; 0.5.7 has the
// same).
package torchdtype

// A DType is a row of the table.
type DType struct {
	Name    string // torch's, without "torch."
	LMCache string // in LMCache's keys
	Size    int    // of an element, in bytes
}

var all = []DType{
	{"float16", "half", 2}, {"bfloat16", "bfloat16", 2}, {"float32", "float", 4}, {"float64", "double", 8},
	{"int8", "int8", 1}, {"uint8", "uint8", 1}, {"int16", "int16", 2}, {"int32", "int32", 4}, {"int64", "int64", 8},
	{"bool", "bool", 1}, {"float8_e4m3fn", "fp8_e4m3fn", 1}, {"float8_e4m3fnuz", "fp8_e4m3fnuz", 1},
	{"float8_e5m2", "fp8_e5m2", 1}, {"float8_e5m2fnuz", "fp8_e5m2fnuz", 1},
}

// Find returns the dtype with torch's name, or nil. The row must not be changed.
func Find(name string) *DType {
	for i := range all {
		if all[i].Name == name {
			return &all[i]
		}
	}
	return nil
}

// FindLMCache returns the dtype with LMCache's name, or nil. The row must not be changed.
func FindLMCache(name string) *DType {
	for i := range all {
		if all[i].LMCache == name {
			return &all[i]
		}
	}
	return nil
}
