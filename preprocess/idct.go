package preprocess

import "encoding/binary"

// What the inverse transform has after the point of its numbers: 13 bits of its
// constants, and after the columns 2 more.
const (
	afterColumns = 11 // bits that go after the columns; two stay
	afterRows    = 18
	// toSample rounds, and moves samples from around 0 to around 128.
	toSample = 128<<afterRows + 1<<(afterRows-1)
)

// idct is the inverse transform of libjpeg's default (jidctint.c, version 6b and
// libjpeg-turbo 3): the same fixed-point numbers with 13 bits. It writes 8 lines of
// 8 samples. What b holds is used up.
func idct(b *[64]int32, dst []byte, stride int) {
	for x := range 8 {
		c := b[x:][:57:57]
		if c[8]|c[16]|c[24]|c[32]|c[40]|c[48]|c[56] == 0 {
			v := c[0] << 2
			c[0], c[8], c[16], c[24], c[32], c[40], c[48], c[56] = v, v, v, v, v, v, v, v
			continue
		}
		y0, y1, y2, y3, y4, y5, y6, y7 := transform(c[0], c[8], c[16], c[24], c[32], c[40], c[48], c[56], 1<<(afterColumns-1))
		c[0], c[8], c[16], c[24] = y0>>afterColumns, y1>>afterColumns, y2>>afterColumns, y3>>afterColumns
		c[32], c[40], c[48], c[56] = y4>>afterColumns, y5>>afterColumns, y6>>afterColumns, y7>>afterColumns
	}
	for y := range 8 {
		r := b[8*y:][:8:8]
		out := dst[y*stride:][:8:8]
		y0, y1, y2, y3, y4, y5, y6, y7 := transform(r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7], toSample)
		out[0], out[1], out[2], out[3] = clip(y0>>afterRows), clip(y1>>afterRows), clip(y2>>afterRows), clip(y3>>afterRows)
		out[4], out[5], out[6], out[7] = clip(y4>>afterRows), clip(y5>>afterRows), clip(y6>>afterRows), clip(y7>>afterRows)
	}
}

// idctFlat is idct of a block that has nothing but its first coefficient.
func idctFlat(first int32, dst []byte, stride int) {
	line := uint64(clip((first<<(2+13)+toSample)>>afterRows)) * 0x0101010101010101
	for y := range 8 {
		binary.LittleEndian.PutUint64(dst[y*stride:], line)
	}
}

// transform returns the inverse transform of 8 values, with 13 more bits after the
// point, and round added: Loeffler, Ligtenberg and Moschytz's, in 12
// multiplications. Arguments and results are few enough to stay in registers.
func transform(x0, x1, x2, x3, x4, x5, x6, x7, round int32) (y0, y1, y2, y3, y4, y5, y6, y7 int32) {
	even := (x2 + x6) * 4433
	c, d := even+x2*6270, even-x6*15137
	a, b := (x0+x4)<<13+round, (x0-x4)<<13+round
	e0, e1, e2, e3 := a+c, b+d, b-d, a-c

	odd := (x1 + x3 + x5 + x7) * 9633
	p, q := (x1+x7)*-7373, (x3+x5)*-20995
	s, t := odd-(x3+x7)*16069, odd-(x1+x5)*3196
	o0, o1 := x1*12299+p+t, x3*25172+q+s
	o2, o3 := x5*16819+q+t, x7*2446+p+s
	return e0 + o0, e1 + o1, e2 + o2, e3 + o3, e3 - o3, e2 - o2, e1 - o1, e0 - o0
}
