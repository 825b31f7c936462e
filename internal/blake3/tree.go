package blake3

import (
	"math/bits"

	"lukechampine.com/blake3/guts"
)

// mode is what sets the modes of BLAKE3 apart.
type mode struct {
	key   [8]uint32
	flags uint32
}

func plain() mode { return mode{key: guts.IV} }

func deriveKey(context string) mode {
	n := guts.CompressChunk([]byte(context), &guts.IV, 0, guts.FlagDeriveKeyContext)
	n.Flags |= guts.FlagRoot
	return mode{guts.ChainingValue(n), guts.FlagDeriveKeyMaterial}
}

// node is the chaining value of a subtree.
type node = [8]uint32

// group hashes a full group, the number of which in the stream is given.
func (m *mode) group(p []byte, number uint64) node {
	return guts.ChainingValue(guts.CompressBuffer((*[groupLen]byte)(p), groupLen, &m.key, number*guts.MaxSIMD, m.flags))
}

func (m *mode) parent(left, right node) guts.Node {
	return guts.ParentNode(left, right, &m.key, m.flags)
}

// tree is the hash of a stream so far, but for its end: the full groups.
type tree struct {
	mode
	groups uint64 // how many; bit i is set when stack[i] is in use
	// stack[i] is the root of 2^i groups. The higher ones are of earlier parts of the stream.
	stack [50]node // 2^64 bytes are 2^50 groups
}

// add appends full groups behind which the stream goes on.
func (t *tree) add(p []byte) {
	for len(p) > 0 {
		data := p[:min(len(p), batchLen)]
		p = p[len(data):]
		if len(data) >= parallelLen && t.addParallel(data, &everyone) {
			continue
		}
		for ; len(data) > 0; data = data[groupLen:] {
			t.push(t.group(data, t.groups))
		}
	}
}

// push appends a group by its root, and joins the subtrees that are complete with it.
func (t *tree) push(n node) {
	height := bits.TrailingZeros64(^t.groups)
	for _, left := range t.stack[:height] {
		n = guts.ChainingValue(t.parent(left, n))
	}
	t.stack[height] = n
	t.groups++
}

// sum returns the hash of the stream that ends with the first n bytes of end, at least one if there are groups
// before. It changes nothing.
func (t *tree) sum(end *[groupLen]byte, n int) (out [Size]byte) {
	root := guts.CompressBuffer(end, n, &t.key, t.groups*guts.MaxSIMD, t.flags)
	for left := t.groups; left != 0; left &= left - 1 {
		root = t.parent(t.stack[bits.TrailingZeros64(left)], guts.ChainingValue(root))
	}
	root.Flags |= guts.FlagRoot
	words := guts.WordsToBytes(guts.CompressNode(root))
	copy(out[:], words[:])
	return out
}
