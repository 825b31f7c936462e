package directory

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/ringcache/ringcache/kv"
)

// A Key is the name of a chunk here: what a worker reports has keys of any length, and the directory has 16 bytes for
// each.
type Key [16]byte

// NumberKey returns the key of a chunk whose hash is a number of 64 bits, as workers of LMCache's controller report it.
func NumberKey(n uint64) Key {
	var k Key
	binary.BigEndian.PutUint64(k[8:], n)
	return k
}

// KeyOf returns the key of a chunk that has a hash, in a space: chunks of two spaces are never the same, whatever their
// hashes are. A hash of 8 bytes in the space "" has the key of its number. Others have the first 16 bytes of a SHA-256,
// and the first bit is set, so that no number has the same key.
func KeyOf(space string, hash []byte) Key {
	if space == "" && len(hash) == 8 {
		return NumberKey(binary.BigEndian.Uint64(hash))
	}
	var room [128]byte
	b := binary.BigEndian.AppendUint32(room[:0], uint32(len(space)))
	b = append(append(b, space...), hash...)
	digest := sha256.Sum256(b)
	k := Key(digest[:16])
	k[0] |= 0x80
	return k
}

// AppendKeys appends the keys of all chunks of a request.
func AppendKeys(dst []Key, space string, c *kv.Chain) []Key {
	for i := range c.Len() {
		dst = append(dst, KeyOf(space, c.Hash(i)))
	}
	return dst
}
