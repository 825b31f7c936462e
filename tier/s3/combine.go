package s3

import "hash/crc32"

// combine returns the checksum of two pieces of data, one behind the other, given those of both and the length
// of the second: so that a head in front of many bytes costs no second pass over them.
func combine(first, second uint32, length int64) uint32 {
	return multiply(first, shift(8*uint64(length))) ^ second
}

// Polynomials over GF(2), as checksums have them: the highest bit is the coefficient of x^0.

// multiply returns a*b modulo the polynomial of the checksum.
func multiply(a, b uint32) (product uint32) {
	for ; a != 0; a <<= 1 {
		if a>>31 != 0 {
			product ^= b
		}
		b = b>>1 ^ crc32.Castagnoli*(b&1) // times x
	}
	return product
}

// shift returns x^n.
func shift(n uint64) uint32 {
	power, square := uint32(1<<31), uint32(1<<30) // x^0, x^1
	for ; n > 0; n >>= 1 {
		if n&1 != 0 {
			power = multiply(power, square)
		}
		square = multiply(square, square)
	}
	return power
}
