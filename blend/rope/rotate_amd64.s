#include "textflag.h"

// The loops of rotate.go with AVX2 and F16C, 8 elements at a time. Products are rounded before they are added, as in Go,
// so that the bits are the same.

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

// ROUND makes bfloat16 numbers, rounded to nearest even, of the float32 numbers of y, in 32 bits each.
#define ROUND(y) \
	VPSRLD $16, y, Y7     \
	VPAND  Y8, Y7, Y7     \
	VPADDD Y7, y, y       \
	VPADDD Y9, y, y       \
	VPSRLD $16, y, y

// func neoxF32AVX2(dst, src *byte, heads, pairs, stride int, cos, sin *float32)
TEXT ·neoxF32AVX2(SB), NOSPLIT, $0-56
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ heads+16(FP), CX
	MOVQ pairs+24(FP), R8
	MOVQ stride+32(FP), R9
	MOVQ cos+40(FP), R10
	MOVQ sin+48(FP), R11
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

// func neoxF16AVX2(dst, src *byte, heads, pairs, stride int, cos, sin *float32)
TEXT ·neoxF16AVX2(SB), NOSPLIT, $0-56
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ heads+16(FP), CX
	MOVQ pairs+24(FP), R8
	MOVQ stride+32(FP), R9
	MOVQ cos+40(FP), R10
	MOVQ sin+48(FP), R11
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

// func neoxBF16AVX2(dst, src *byte, heads, pairs, stride int, cos, sin *float32)
TEXT ·neoxBF16AVX2(SB), NOSPLIT, $0-56
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ heads+16(FP), CX
	MOVQ pairs+24(FP), R8
	MOVQ stride+32(FP), R9
	MOVQ cos+40(FP), R10
	MOVQ sin+48(FP), R11
	LEAQ (SI)(R8*2), R12 // second halves
	LEAQ (DI)(R8*2), R13
	VPBROADCASTD one<>(SB), Y8
	VPBROADCASTD almost<>(SB), Y9

head:
	XORQ AX, AX

pair:
	VPMOVZXWD (SI)(AX*2), Y0
	VPSLLD $16, Y0, Y0
	VPMOVZXWD (R12)(AX*2), Y1
	VPSLLD $16, Y1, Y1
	VMOVUPS (R10)(AX*4), Y2
	VMOVUPS (R11)(AX*4), Y3
	VMULPS Y2, Y0, Y4
	VMULPS Y3, Y1, Y5
	VSUBPS Y5, Y4, Y4 // a cos - b sin
	VMULPS Y2, Y1, Y5
	VMULPS Y3, Y0, Y6
	VADDPS Y6, Y5, Y5 // b cos + a sin
	ROUND(Y4)
	ROUND(Y5)
	VPACKUSDW Y5, Y4, Y4
	VPERMQ $0xd8, Y4, Y4
	VMOVDQU X4, (DI)(AX*2)
	VEXTRACTI128 $1, Y4, (R13)(AX*2)
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

// func gptjF32AVX2(dst, src *byte, heads, pairs, stride int, twins, signed *float32)
TEXT ·gptjF32AVX2(SB), NOSPLIT, $0-56
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ heads+16(FP), CX
	MOVQ pairs+24(FP), R8
	MOVQ stride+32(FP), R9
	MOVQ twins+40(FP), R10
	MOVQ signed+48(FP), R11
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

// func gptjF16AVX2(dst, src *byte, heads, pairs, stride int, twins, signed *float32)
TEXT ·gptjF16AVX2(SB), NOSPLIT, $0-56
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ heads+16(FP), CX
	MOVQ pairs+24(FP), R8
	MOVQ stride+32(FP), R9
	MOVQ twins+40(FP), R10
	MOVQ signed+48(FP), R11
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

// func gptjBF16AVX2(dst, src *byte, heads, pairs, stride int, twins, signed *float32)
TEXT ·gptjBF16AVX2(SB), NOSPLIT, $0-56
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ heads+16(FP), CX
	MOVQ pairs+24(FP), R8
	MOVQ stride+32(FP), R9
	MOVQ twins+40(FP), R10
	MOVQ signed+48(FP), R11
	ADDQ R8, R8 // elements
	VPBROADCASTD one<>(SB), Y8
	VPBROADCASTD almost<>(SB), Y9

head:
	XORQ AX, AX

pair:
	VPMOVZXWD (SI)(AX*2), Y0
	VPSLLD $16, Y0, Y0
	VPERMILPS $0xb1, Y0, Y1 // the other element of each pair
	VMULPS (R10)(AX*4), Y0, Y0
	VMULPS (R11)(AX*4), Y1, Y1
	VADDPS Y1, Y0, Y4
	ROUND(Y4)
	VEXTRACTI128 $1, Y4, X5
	VPACKUSDW X5, X4, X4
	VMOVDQU X4, (DI)(AX*2)
	ADDQ $8, AX
	CMPQ AX, R8
	JLT pair
	ADDQ R9, SI
	ADDQ R9, DI
	DECQ CX
	JNZ head
	VZEROUPPER
	RET
