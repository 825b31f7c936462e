package preprocess

import "sync"

// buffers is memory that one Fill after the other uses. It holds anything at first.
type buffers struct {
	samples      []byte      // of a JPEG
	coefficients [][64]int16 // of a progressive one
	turned       []byte
	steps        [2][4][1 << fastBits]step // of its codes
}

// maxReused is the most bytes that are kept for the next Fill, and as much again for the
// lines of its bands: those of a photo with ten million pixels.
const maxReused = 32 << 20

var bufferPool = sync.Pool{New: func() any { return new(buffers) }}

func takeBuffers() *buffers { return bufferPool.Get().(*buffers) }

// giveBack keeps the memory, unless it is a lot. The decoded image must not be used
// any more.
func (b *buffers) giveBack() {
	if cap(b.samples)+128*cap(b.coefficients)+cap(b.turned) <= maxReused {
		bufferPool.Put(b)
	}
}

func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
