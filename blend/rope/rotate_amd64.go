package rope

import "golang.org/x/sys/cpu"

// vectors reports whether processor and kernel have what rotate_amd64.s uses; its first comment says what the
// routines require of their arguments.
var vectors = cpu.X86.HasAVX2 && cpu.X86.HasF16C

//go:noescape
func neoxF32AVX2(dst, src *byte, heads, pairs, stride int, first, second *float32)

//go:noescape
func gptjF32AVX2(dst, src *byte, heads, pairs, stride int, first, second *float32)

//go:noescape
func neoxF16AVX2(dst, src *byte, heads, pairs, stride int, first, second *float32)

//go:noescape
func gptjF16AVX2(dst, src *byte, heads, pairs, stride int, first, second *float32)

//go:noescape
func neoxBF16AVX2(dst, src *byte, heads, pairs, stride int, first, second *float32)

//go:noescape
func gptjBF16AVX2(dst, src *byte, heads, pairs, stride int, first, second *float32)

// applyVectors rotates the heads of src, of which there is one at least, and reports whether it could.
func (r Rotation) applyVectors(dst, src []byte, d DType) bool {
	pairs, stride := len(r.cos), r.dim*d.Size()
	heads := len(src) / stride
	if !vectors || pairs%8 != 0 || d == BF16 && r.pairing == NeoX && pairs%16 != 0 {
		return false
	}
	switch {
	case d == F32 && r.pairing == NeoX:
		neoxF32AVX2(&dst[0], &src[0], heads, pairs, stride, &r.cos[0], &r.sin[0])
	case d == F32:
		gptjF32AVX2(&dst[0], &src[0], heads, pairs, stride, &r.first[0], &r.second[0])
	case d == BF16 && r.pairing == NeoX:
		neoxBF16AVX2(&dst[0], &src[0], heads, pairs, stride, &r.first[0], &r.second[0])
	case d == BF16:
		gptjBF16AVX2(&dst[0], &src[0], heads, pairs, stride, &r.cos[0], &r.sin[0])
	case r.pairing == NeoX:
		neoxF16AVX2(&dst[0], &src[0], heads, pairs, stride, &r.cos[0], &r.sin[0])
	default:
		gptjF16AVX2(&dst[0], &src[0], heads, pairs, stride, &r.first[0], &r.second[0])
	}
	return true
}
