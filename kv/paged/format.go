package paged

import "fmt"

// A Format is the order of dimensions in a chunk, with LMCache's number (MemoryFormat in
// lmcache/v1/memory_management.py of 0.5.6). Hidden is the elements of a token in one layer and plane, of all
// heads.
type Format int

const (
	KV2LTD Format = 1 // [2, layers, tokens, hidden]: a chunk of all layers
	KVT2D  Format = 2 // [tokens, 2, hidden]: a chunk of one layer, as LMCache stores layer by layer
	KV2TD  Format = 3 // [2, tokens, hidden]: the same for blending
	// KVMLA is of buffers with one plane: [1, layers, tokens, hidden], or of one layer [tokens, hidden].
	KVMLA Format = 6
)

// String returns LMCache's name.
func (f Format) String() string {
	switch f {
	case KV2LTD:
		return "KV_2LTD"
	case KVT2D:
		return "KV_T2D"
	case KV2TD:
		return "KV_2TD"
	case KVMLA:
		return "KV_MLA_FMT"
	}
	return fmt.Sprintf("Format(%d)", int(f))
}

// Whole returns the format of chunks of all layers: KV2LTD, or KVMLA if the layout has one plane.
func (l Layout) Whole() Format {
	if l.Planes() == 1 {
		return KVMLA
	}
	return KV2LTD
}

// layered reports whether chunks of one layer of buffers with so many planes can have the format.
func (f Format) layered(planes int) bool {
	if planes == 1 {
		return f == KVMLA
	}
	return f == KVT2D || f == KV2TD
}
