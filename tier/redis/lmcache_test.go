package redis

import "encoding/binary"

// metadataOf is LMCache's RemoteMetadata of bytes in one dimension.
func metadataOf(size int) []byte {
	b := make([]byte, 0, 28)
	for _, n := range []int{size, 1, 6, size, 1, 1, 1} {
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
	}
	return b
}
