package lmcache

import (
	"encoding/hex"
	"strconv"

	"github.com/zeebo/blake3"
)

// names returns the names of the chunks [from, to) of packed tokens: each is a hash of all tokens up to its end, as
// LMCache hashes by default.
func names(tokens []byte, chunk, from, to int) []string {
	out := make([]string, 0, max(0, to-from))
	var in []byte
	var before [32]byte
	copy(before[:], root)
	in = append(in, before[:]...)
	for i := range to {
		in = append(in[:32], tokens[4*chunk*i:4*chunk*(i+1)]...)
		sum := blake3.Sum256(in)
		copy(in, sum[:])
		if i >= from {
			out = append(out, hex.EncodeToString(sum[:]))
		}
	}
	return out
}

var root = make([]byte, 32)

// groupName is the name of the object of a group.
func groupName(chunk string, group int) string {
	if group == 0 {
		return chunk
	}
	return chunk + "@" + strconv.Itoa(group)
}
