// Package blake3 is the BLAKE3 hash of 32 bytes, as fast as the Go packages for it allow. It is the one place that
// chooses between them.
//
//   - github.com/zeebo/blake3 has the shortest way for short streams, and the fastest code where vectors have at
//     most 8 lanes. It hashes on one processor.
//   - lukechampine.com/blake3/guts hashes 16 chunks of the tree at a time, for any place in it. With AVX-512 this
//     is faster for long streams, and parts of one tree can be hashed on several processors.
//
// Both are checked against the vectors of the BLAKE3 project and against each other.
//
// # Processors
//
// A Write of 1 MiB and more starts helpers where long streams are hashed as trees, if processors are free: as many
// as are missing to GOMAXPROCS goroutines that hash such writes, over all Hashers of the process. A caller that comes
// later hashes beside them. A caller doesn't wait for a helper that has not begun, and the next callers do without
// after helpers that didn't pay. Thus writes on a busy machine, and with GOMAXPROCS=1, are hashed by their callers
// alone. When Write returns, no helper touches its bytes. A memory fault is always one of the caller's goroutine.
//
// See docs/decisions.md, "Two libraries compute BLAKE3".
package blake3

import (
	"hash"
	"runtime"

	"github.com/klauspost/cpuid/v2"
	zeebo "github.com/zeebo/blake3"
	"lukechampine.com/blake3/guts"
)

// Size is the length of a hash in bytes.
const Size = 32

const (
	groupLen = guts.MaxSIMD * guts.ChunkSize // what guts hashes with every lane of a vector in use
	shortLen = 8 << 10                       // streams up to here are hashed by zeebo, which is faster at 4 KiB and slower at 16 KiB
)

// treesAreFaster reports whether guts is at least as fast as zeebo for long streams. That was measured with
// AVX512-FP16 and without any vectors; with AVX2 alone guts was a sixth slower. Processors between these were not
// measured. They keep zeebo, since guts fills its vectors by gather instructions, which are said to be slow there.
var treesAreFaster = runtime.GOARCH != "amd64" || cpuid.CPU.Supports(cpuid.AVX512F, cpuid.AVX512FP16)

// Hasher is a running hash. It takes 30 KiB; Reset makes it as new, without allocating. One goroutine may use it at
// a time.
type Hasher struct {
	trees bool          // long streams are hashed by tree
	short *zeebo.Hasher // hashes all other streams
	tree  tree
	buf   [groupLen]byte // with trees: what was written behind the tree, and may be the end of the stream
	n     int            // how much of buf is in use
}

var _ hash.Hash = (*Hasher)(nil)

// New returns a Hasher of the plain mode.
func New() *Hasher {
	return newHasher(treesAreFaster, zeebo.New(), plain())
}

// NewDeriveKey returns a Hasher of the mode for deriving keys, with a context of at most 1024 bytes that sets these
// hashes apart from all others.
func NewDeriveKey(context string) *Hasher {
	return newHasher(treesAreFaster, zeebo.NewDeriveKey(context), deriveKey(context))
}

func newHasher(trees bool, short *zeebo.Hasher, m mode) *Hasher {
	return &Hasher{trees: trees, short: short, tree: tree{mode: m}}
}

// Write implements io.Writer. It doesn't fail and doesn't keep p.
func (h *Hasher) Write(p []byte) (int, error) {
	if !h.trees {
		return h.short.Write(p)
	}
	total := len(p)
	if h.n > 0 {
		n := copy(h.buf[h.n:], p)
		h.n, p = h.n+n, p[n:]
		if len(p) == 0 {
			return total, nil
		}
		h.tree.add(h.buf[:])
		h.n = 0
	}
	// A last group stays behind even if it is full: only Sum knows whether it is the last.
	if len(p) > groupLen {
		groups := (len(p) - 1) / groupLen * groupLen
		h.tree.add(p[:groups])
		p = p[groups:]
	}
	h.n = copy(h.buf[:], p)
	return total, nil
}

// Sum appends the hash of what was written to b. More can be written afterwards.
func (h *Hasher) Sum(b []byte) []byte {
	switch {
	case !h.trees:
		return h.short.Sum(b)
	case h.tree.groups == 0 && h.n <= shortLen:
		h.short.Reset()
		_, _ = h.short.Write(h.buf[:h.n]) // it never fails
		return h.short.Sum(b)
	}
	sum := h.tree.sum(&h.buf, h.n)
	return append(b, sum[:]...)
}

// Reset begins a new stream in the same mode.
func (h *Hasher) Reset() {
	h.short.Reset()
	h.tree.groups, h.n = 0, 0
}

// Size returns 32.
func (h *Hasher) Size() int { return Size }

// BlockSize returns 64.
func (h *Hasher) BlockSize() int { return guts.BlockSize }
