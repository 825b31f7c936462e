#include "textflag.h"

// The loops of rotate.go with AVX2 and F16C. Products are rounded before they are added, as in Go, so that
// the bits are the same: no fused operations.
//
// All routines have the signature
//
//	func(dst, src *byte, heads, pairs, stride int, first, second *float32)
//
// and these requirements:
//   - There is at least one head; the heads lie stride bytes apart in both dst and src.
//   - pairs is above 0 and a multiple of 8, of 16 for neoxBF16AVX2: there is no loop for a remainder.
//   - dst is src, or does not overlap it. No address needs an alignment.
//
// Registers:
//
//	DI, SI    the head in dst and in src
//	R13, R12  its second half in dst and in src, for NeoX
//	CX        heads left
//	AX, R8    the pair, and their number (for gptjF32AVX2 and gptjF16AVX2, elements)
//	R9        stride
//	R10, R11  first and second: factors of the pair or element in AX
//	Y8-Y10    constants of bfloat16, see CONSTANTSBF16
//	Y13       scratch

DATA upper<>+0(SB)/4, $0xffff0000
GLOBL upper<>(SB), RODATA, $4
DATA one<>+0(SB)/4, $1
GLOBL one<>(SB), RODATA, $4
DATA belowHalf<>+0(SB)/4, $0x7fff
GLOBL belowHalf<>(SB), RODATA, $4

// ARGUMENTS loads the arguments.
#define ARGUMENTS \
	MOVQ dst+0(FP), DI     \
	MOVQ src+8(FP), SI     \
	MOVQ heads+16(FP), CX  \
	MOVQ pairs+24(FP), R8  \
	MOVQ stride+32(FP), R9 \
	MOVQ first+40(FP), R10 \
	MOVQ second+48(FP), R11

// HALVES sets R12 and R13 for elements of size bytes.
#define HALVES(size) \
	LEAQ (SI)(R8*size), R12 \
	LEAQ (DI)(R8*size), R13

// NEXT ends both loops: step pairs (or elements) on to the label pair, and then to the label head for the
// next head.
#define NEXT(step) \
	ADDQ $step, AX \
	CMPQ AX, R8    \
	JLT  pair      \
	ADDQ R9, SI    \
	ADDQ R9, DI    \
	DECQ CX        \
	JNZ  head      \
	VZEROUPPER

// TURN turns the 8 pairs a, b by the cosines c and sines s: x = a*c - b*s, y = b*c + a*s.
#define TURN(a, b, c, s, x, y) \
	VMULPS c, a, x   \
	VMULPS s, b, Y13 \
	VSUBPS Y13, x, x \
	VMULPS c, b, y   \
	VMULPS s, a, Y13 \
	VADDPS Y13, y, y

// LOADF32, LOADF16, STOREF32 and STOREF16 move 8 numbers between the memory at p and the float32 numbers of
// y. A float16 is rounded to nearest even.
#define LOADF32(p, y) VMOVUPS p, y
#define LOADF16(p, y) VCVTPH2PS p, y
#define STOREF32(y, p) VMOVUPS y, p
#define STOREF16(y, p) VCVTPS2PH $0, y, p

// NEOX is the whole of a routine for elements of size bytes: 8 elements a of the first half with 8 elements b
// of the second one. first and second are cosines and sines by pair.
#define NEOX(LOAD, STORE, size) \
	ARGUMENTS                          \
head:                                      \
	HALVES(size)                       \
	XORQ AX, AX                        \
pair:                                      \
	LOAD((SI)(AX*size), Y0)            \
	LOAD((R12)(AX*size), Y1)           \
	VMOVUPS (R10)(AX*4), Y2            \
	VMOVUPS (R11)(AX*4), Y3            \
	TURN(Y0, Y1, Y2, Y3, Y4, Y5)       \
	STORE(Y4, (DI)(AX*size))           \
	STORE(Y5, (R13)(AX*size))          \
	NEXT(8)

// GPTJ is the whole of a routine for elements of size bytes: 4 pairs, which lie side by side. first and
// second have a factor for each element: the cosine, and the sine with the sign of the other element of the
// pair.
#define GPTJ(LOAD, STORE, size) \
	ARGUMENTS                          \
	ADDQ R8, R8                        \
head:                                      \
	XORQ AX, AX                        \
pair:                                      \
	LOAD((SI)(AX*size), Y0)            \
	VPERMILPS $0xb1, Y0, Y1 /* swaps the elements of each pair */ \
	VMULPS (R10)(AX*4), Y0, Y0         \
	VMULPS (R11)(AX*4), Y1, Y1         \
	VADDPS Y1, Y0, Y0                  \
	STORE(Y0, (DI)(AX*size))           \
	NEXT(8)

// CONSTANTSBF16 loads the constants of ROUND and UNPACK.
#define CONSTANTSBF16 \
	VPBROADCASTD one<>(SB), Y8       \
	VPBROADCASTD belowHalf<>(SB), Y9 \
	VPBROADCASTD upper<>(SB), Y10

// ROUND rounds the float32 numbers of y to bfloat16, to nearest even: the upper halves. The lower ones are
// left over.
#define ROUND(y) \
	VPSRLD $16, y, Y13  \
	VPAND  Y8, Y13, Y13 \
	VPADDD Y9, y, y     \
	VPADDD Y13, y, y

// UNPACK makes float32 numbers of the 16 bfloat16 numbers at p: those with even numbers in e, with odd ones
// in o.
#define UNPACK(p, e, o) \
	VMOVDQU p, o      \
	VPSLLD  $16, o, e \
	VPAND   Y10, o, o

// PACK is the opposite, rounded.
#define PACK(e, o, p) \
	ROUND(e)                \
	ROUND(o)                \
	VPSRLD   $16, e, e      \
	VPBLENDW $0xaa, o, e, e \
	VMOVDQU  e, p

// func neoxF32AVX2(dst, src *byte, heads, pairs, stride int, first, second *float32)
//
// Turns float32 keys whose pairs are halves of the head apart, 8 pairs at a time.
TEXT ·neoxF32AVX2(SB), NOSPLIT, $0-56
	NEOX(LOADF32, STOREF32, 4)
	RET

// func neoxF16AVX2(dst, src *byte, heads, pairs, stride int, first, second *float32)
//
// Is neoxF32AVX2 for float16 keys.
TEXT ·neoxF16AVX2(SB), NOSPLIT, $0-56
	NEOX(LOADF16, STOREF16, 2)
	RET

// func gptjF32AVX2(dst, src *byte, heads, pairs, stride int, first, second *float32)
//
// Turns float32 keys whose pairs are neighbours, 4 pairs at a time.
TEXT ·gptjF32AVX2(SB), NOSPLIT, $0-56
	GPTJ(LOADF32, STOREF32, 4)
	RET

// func gptjF16AVX2(dst, src *byte, heads, pairs, stride int, first, second *float32)
//
// Is gptjF32AVX2 for float16 keys.
TEXT ·gptjF16AVX2(SB), NOSPLIT, $0-56
	GPTJ(LOADF16, STOREF16, 2)
	RET

// func neoxBF16AVX2(dst, src *byte, heads, pairs, stride int, first, second *float32)
//
// Turns bfloat16 keys whose pairs are halves of the head apart, 16 pairs at a time: a of the first half in Y0
// and Y1, b of the second one in Y2 and Y3. first and second are cosines and sines in the order of UNPACK: in
// each block of 16 pairs, 8 for the pairs with even numbers and then 8 for those with odd ones.
TEXT ·neoxBF16AVX2(SB), NOSPLIT, $0-56
	ARGUMENTS
	CONSTANTSBF16

head:
	HALVES(2)
	XORQ AX, AX

pair:
	UNPACK((SI)(AX*2), Y0, Y1)
	UNPACK((R12)(AX*2), Y2, Y3)
	VMOVUPS (R10)(AX*4), Y4
	VMOVUPS (R11)(AX*4), Y5
	TURN(Y0, Y2, Y4, Y5, Y6, Y7)
	VMOVUPS 32(R10)(AX*4), Y4
	VMOVUPS 32(R11)(AX*4), Y5
	TURN(Y1, Y3, Y4, Y5, Y11, Y12)
	PACK(Y6, Y11, (DI)(AX*2))
	PACK(Y7, Y12, (R13)(AX*2))
	NEXT(16)
	RET

// func gptjBF16AVX2(dst, src *byte, heads, pairs, stride int, first, second *float32)
//
// Turns bfloat16 keys whose pairs are neighbours, 8 pairs at a time: UNPACK leaves the first elements in Y0
// and the second ones in Y1. first and second are cosines and sines by pair.
TEXT ·gptjBF16AVX2(SB), NOSPLIT, $0-56
	ARGUMENTS
	CONSTANTSBF16

head:
	XORQ AX, AX

pair:
	UNPACK((SI)(AX*4), Y0, Y1)
	VMOVUPS (R10)(AX*4), Y4
	VMOVUPS (R11)(AX*4), Y5
	TURN(Y0, Y1, Y4, Y5, Y6, Y7)
	PACK(Y6, Y7, (DI)(AX*4))
	NEXT(8)
	RET
