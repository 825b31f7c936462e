#include "textflag.h"

// The loops of rotate.go with AVX2 and F16C, 8 elements or 16 at a time. Products are rounded before they are added, as in Go,
// so that the bits are the same.

DATA upper<>+0(SB)/4, $0xffff0000
GLOBL upper<>(SB), RODATA, $4
DATA one<>+0(SB)/4, $1
GLOBL one<>(SB), RODATA, $4
DATA almost<>+0(SB)/4, $0x7fff
GLOBL almost<>(SB), RODATA, $4

// func hasF16C() bool
TEXT ·hasF16C(SB), NOSPLIT, $0-1
	MOVL $1, AX
	XORL CX, CX
	CPUID
	SHRL $29, CX
	ANDL $1, CX
	MOVB CX, ret+0(FP)
	RET

// ROUND rounds the float32 numbers of y to bfloat16, to nearest even; the lower halves are what is left over.
#define ROUND(y) \
	VPSRLD $16, y, Y13    \
	VPAND  Y8, Y13, Y13   \
	VPADDD Y9, y, y       \
	VPADDD Y13, y, y

// TURN turns the pairs a, b by the cosines c and sines s, into x and y.
#define TURN(a, b, c, s, x, y) \
	VMULPS c, a, x        \
	VMULPS s, b, Y13      \
	VSUBPS Y13, x, x      \
	VMULPS c, b, y        \
	VMULPS s, a, Y13      \
	VADDPS Y13, y, y

// UNPACK makes float32 numbers of the 16 bfloat16 numbers at p: those with even numbers in e, with odd ones in o.
#define UNPACK(p, e, o) \
	VMOVDQU p, o          \
	VPSLLD  $16, o, e     \
	VPAND   Y10, o, o

// PACK is the opposite, rounded.
#define PACK(e, o, p) \
	ROUND(e)              \
	ROUND(o)              \
	VPSRLD   $16, e, e    \
	VPBLENDW $0xaa, o, e, e \
	VMOVDQU  e, p

// func neoxF32AVX2(dst, src *byte, heads, pairs, stride int, first, second *float32)
TEXT ·neoxF32AVX2(SB), NOSPLIT, $0-56
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ heads+16(FP), CX
	MOVQ pairs+24(FP), R8
	MOVQ stride+32(FP), R9
	MOVQ first+40(FP), R10
	MOVQ second+48(FP), R11
	LEAQ (SI)(R8*4), R12 // second halves
	LEAQ (DI)(R8*4), R13

head:
	XORQ AX, AX

pair:
	VMOVUPS (SI)(AX*4), Y0
	VMOVUPS (R12)(AX*4), Y1
	VMOVUPS (R10)(AX*4), Y2
	VMOVUPS (R11)(AX*4), Y3
	VMULPS Y2, Y0, Y4
	VMULPS Y3, Y1, Y5
	VSUBPS Y5, Y4, Y4 // a cos - b sin
	VMULPS Y2, Y1, Y5
	VMULPS Y3, Y0, Y6
	VADDPS Y6, Y5, Y5 // b cos + a sin
	VMOVUPS Y4, (DI)(AX*4)
	VMOVUPS Y5, (R13)(AX*4)
	ADDQ $8, AX
	CMPQ AX, R8
	JLT pair
	ADDQ R9, SI
	ADDQ R9, R12
	ADDQ R9, DI
	ADDQ R9, R13
	DECQ CX
	JNZ head
	VZEROUPPER
	RET

// func neoxF16AVX2(dst, src *byte, heads, pairs, stride int, first, second *float32)
TEXT ·neoxF16AVX2(SB), NOSPLIT, $0-56
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ heads+16(FP), CX
	MOVQ pairs+24(FP), R8
	MOVQ stride+32(FP), R9
	MOVQ first+40(FP), R10
	MOVQ second+48(FP), R11
	LEAQ (SI)(R8*2), R12 // second halves
	LEAQ (DI)(R8*2), R13

head:
	XORQ AX, AX

pair:
	VCVTPH2PS (SI)(AX*2), Y0
	VCVTPH2PS (R12)(AX*2), Y1
	VMOVUPS (R10)(AX*4), Y2
	VMOVUPS (R11)(AX*4), Y3
	VMULPS Y2, Y0, Y4
	VMULPS Y3, Y1, Y5
	VSUBPS Y5, Y4, Y4 // a cos - b sin
	VMULPS Y2, Y1, Y5
	VMULPS Y3, Y0, Y6
	VADDPS Y6, Y5, Y5 // b cos + a sin
	VCVTPS2PH $0, Y4, (DI)(AX*2)
	VCVTPS2PH $0, Y5, (R13)(AX*2)
	ADDQ $8, AX
	CMPQ AX, R8
	JLT pair
	ADDQ R9, SI
	ADDQ R9, R12
	ADDQ R9, DI
	ADDQ R9, R13
	DECQ CX
	JNZ head
	VZEROUPPER
	RET

// Cosines and sines are in the order of UNPACK.
//
// func neoxBF16AVX2(dst, src *byte, heads, pairs, stride int, first, second *float32)
TEXT ·neoxBF16AVX2(SB), NOSPLIT, $0-56
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ heads+16(FP), CX
	MOVQ pairs+24(FP), R8
	MOVQ stride+32(FP), R9
	MOVQ first+40(FP), R10
	MOVQ second+48(FP), R11
	LEAQ (SI)(R8*2), R12 // second halves
	LEAQ (DI)(R8*2), R13
	VPBROADCASTD one<>(SB), Y8
	VPBROADCASTD almost<>(SB), Y9
	VPBROADCASTD upper<>(SB), Y10

head:
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
	ADDQ $16, AX
	CMPQ AX, R8
	JLT pair
	ADDQ R9, SI
	ADDQ R9, R12
	ADDQ R9, DI
	ADDQ R9, R13
	DECQ CX
	JNZ head
	VZEROUPPER
	RET

// func gptjF32AVX2(dst, src *byte, heads, pairs, stride int, first, second *float32)
TEXT ·gptjF32AVX2(SB), NOSPLIT, $0-56
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ heads+16(FP), CX
	MOVQ pairs+24(FP), R8
	MOVQ stride+32(FP), R9
	MOVQ first+40(FP), R10
	MOVQ second+48(FP), R11
	ADDQ R8, R8 // elements

head:
	XORQ AX, AX

pair:
	VMOVUPS (SI)(AX*4), Y0
	VPERMILPS $0xb1, Y0, Y1 // the other element of each pair
	VMULPS (R10)(AX*4), Y0, Y0
	VMULPS (R11)(AX*4), Y1, Y1
	VADDPS Y1, Y0, Y4
	VMOVUPS Y4, (DI)(AX*4)
	ADDQ $8, AX
	CMPQ AX, R8
	JLT pair
	ADDQ R9, SI
	ADDQ R9, DI
	DECQ CX
	JNZ head
	VZEROUPPER
	RET

// func gptjF16AVX2(dst, src *byte, heads, pairs, stride int, first, second *float32)
TEXT ·gptjF16AVX2(SB), NOSPLIT, $0-56
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ heads+16(FP), CX
	MOVQ pairs+24(FP), R8
	MOVQ stride+32(FP), R9
	MOVQ first+40(FP), R10
	MOVQ second+48(FP), R11
	ADDQ R8, R8 // elements

head:
	XORQ AX, AX

pair:
	VCVTPH2PS (SI)(AX*2), Y0
	VPERMILPS $0xb1, Y0, Y1 // the other element of each pair
	VMULPS (R10)(AX*4), Y0, Y0
	VMULPS (R11)(AX*4), Y1, Y1
	VADDPS Y1, Y0, Y4
	VCVTPS2PH $0, Y4, (DI)(AX*2)
	ADDQ $8, AX
	CMPQ AX, R8
	JLT pair
	ADDQ R9, SI
	ADDQ R9, DI
	DECQ CX
	JNZ head
	VZEROUPPER
	RET

// func gptjBF16AVX2(dst, src *byte, heads, pairs, stride int, first, second *float32)
TEXT ·gptjBF16AVX2(SB), NOSPLIT, $0-56
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ heads+16(FP), CX
	MOVQ pairs+24(FP), R8
	MOVQ stride+32(FP), R9
	MOVQ first+40(FP), R10
	MOVQ second+48(FP), R11
	VPBROADCASTD one<>(SB), Y8
	VPBROADCASTD almost<>(SB), Y9
	VPBROADCASTD upper<>(SB), Y10

head:
	XORQ AX, AX

pair:
	UNPACK((SI)(AX*4), Y0, Y1)
	VMOVUPS (R10)(AX*4), Y4
	VMOVUPS (R11)(AX*4), Y5
	TURN(Y0, Y1, Y4, Y5, Y6, Y7)
	PACK(Y6, Y7, (DI)(AX*4))
	ADDQ $8, AX
	CMPQ AX, R8
	JLT pair
	ADDQ R9, SI
	ADDQ R9, DI
	DECQ CX
	JNZ head
	VZEROUPPER
	RET
