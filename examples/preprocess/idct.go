package preprocess

// idct is the inverse transform of libjpeg's default (jidctint.c, version 6b and
// libjpeg-turbo 3): the same fixed-point numbers with 13 bits, multiplied out.
// It writes 8 lines of 8 samples.
func idct(b *[64]int32, dst []byte, stride int) {
	const (
		first  = 11 // bits that go after the columns; two stay
		second = 18
	)
	for x := range 8 {
		c := b[x:]
		c = c[:57:57]
		if c[8]|c[16]|c[24]|c[32]|c[40]|c[48]|c[56] == 0 {
			v := c[0] << 2
			c[0], c[8], c[16], c[24], c[32], c[40], c[48], c[56] = v, v, v, v, v, v, v, v
			continue
		}
		e, o := butterfly(c[0], c[8], c[16], c[24], c[32], c[40], c[48], c[56], 1<<(first-1))
		for i := range 4 {
			c[8*i], c[56-8*i] = (e[i]+o[i])>>first, (e[i]-o[i])>>first
		}
	}
	for y := range 8 {
		r := b[8*y:][:8:8]
		out := dst[y*stride:][:8:8]
		e, o := butterfly(r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7], 128<<second+1<<(second-1))
		for i := range 4 {
			out[i], out[7-i] = clip((e[i]+o[i])>>second), clip((e[i]-o[i])>>second)
		}
	}
}

// butterfly returns the even and the odd part of a transform of 8 values; their
// sums are the first 4 results, their differences the last 4 from the end.
func butterfly(x0, x1, x2, x3, x4, x5, x6, x7, round int32) (even, odd [4]int32) {
	a, b := (x0+x4)<<13+round, (x0-x4)<<13+round
	c, d := 10703*x2+4433*x6, 4433*x2-10704*x6
	even = [4]int32{a + c, b + d, b - d, a - c}
	odd = [4]int32{
		11363*x1 + 9633*x3 + 6437*x5 + 2260*x7,
		9633*x1 - 2259*x3 - 11362*x5 - 6436*x7,
		6437*x1 - 11362*x3 + 2261*x5 + 9633*x7,
		2260*x1 - 6436*x3 + 9633*x5 - 11363*x7,
	}
	return even, odd
}
