// Package shapes counts the bytes of an array by its shape.
package shapes

import "math/bits"

// MaxDims is the largest number of dimensions that numpy and torch allow.
const MaxDims = 64

// Bytes multiplies a shape out with the size of an element. ok is false for more
// than MaxDims dimensions, a negative one, or more bytes than an int can count. A
// zero dimension makes the array empty, but does not excuse the others from
// fitting, as in torch and numpy.
func Bytes(shape []int, size int) (n int, ok bool) {
	if len(shape) > MaxDims {
		return 0, false
	}
	product, empty := uint64(size), false
	for _, d := range shape {
		if d < 0 {
			return 0, false
		}
		if d == 0 {
			empty = true
			continue
		}
		hi, lo := bits.Mul64(product, uint64(d))
		if hi != 0 || lo > uint64(^uint(0)>>1) {
			return 0, false
		}
		product = lo
	}
	if empty {
		return 0, true
	}
	return int(product), true
}
