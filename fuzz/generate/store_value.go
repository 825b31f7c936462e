package generate

import (
	"encoding/binary"
	"encoding/hex"

	"github.com/ringcache/ringcache/fuzz"
)

// The smallest chunk of a pickle of bytes has 52 bytes, and each byte is one more, apart from
// two jumps where lengths no longer fit in one byte.
const smallestChunk = 52

// value returns a value whose chunk has about so many bytes, exactly so many for most: a pickle
// of bytes, or a tensor of them. Its bytes are those of the next operation and of no other.
func (s *stores) value(chunk int) map[string]any {
	n := max(0, chunk-smallestChunk)
	if !s.o.BytesOnly && s.Percent(25) {
		n = max(0, n-14)
		data := map[string]any{"dtype": "uint8", "shape": []any{n}, "hex": hex.EncodeToString(content(len(s.ops)+1, n))}
		return map[string]any{"type": "tensor", "data": data}
	}
	switch {
	case n > 258:
		n -= 4
	case n > 255:
		n = 255 // there is none between
	case n > 240:
		n--
	}
	return map[string]any{"type": "pickle", "hex": hex.EncodeToString(pickled(content(len(s.ops)+1, n)))}
}

// content is what one operation stores: other bytes for each, so that a mix-up is seen.
func content(op, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(op*31 + i*7)
	}
	return b
}

// pickled is Python's pickle of a bytes object of less than 64 KiB, protocol 5.
func pickled(b []byte) []byte {
	body := []byte{'C', byte(len(b))}
	if len(b) > 255 {
		body = binary.LittleEndian.AppendUint32([]byte{'B'}, uint32(len(b)))
	}
	body = append(append(body, b...), 0x94, '.')
	return append(binary.LittleEndian.AppendUint64([]byte{0x80, 5, 0x95}, uint64(len(body))), body...)
}

// chunk draws the size of a chunk, mostly one at a border.
func (s *stores) chunk() int {
	border := []int{s.size / 3, smallestChunk, s.size / 4, s.size / 2, s.size, s.maxObject + 8, s.size / 8}
	if start, end, ok := s.ends(); ok {
		// up to the end of the memory; up to the oldest chunk
		border = append(border, s.size-end%s.size, start+s.size-end)
	}
	n := border[s.Int(len(border))]
	if s.Percent(30) {
		n = smallestChunk + s.Int(max(1, s.size/3))
	}
	return n + fuzz.Pick(s.Choices, 0, 0, 0, 1, -1)
}

// ends returns where the model's ring starts and ends.
func (s *stores) ends() (start, end int, ok bool) {
	if s.pool {
		return 0, 0, false
	}
	state := fuzz.Op{Name: "store.state", Args: map[string]any{"store": s.o.Store + "w"}}
	r, err := s.model.Do([]fuzz.Op{state})
	if err != nil || r[0].Kind != "" {
		return 0, 0, false
	}
	ring, _ := r[0].Fields["ring"].(map[string]any)
	a, okStart := ring["start"].(int64)
	b, okEnd := ring["end"].(int64)
	return int(a), int(b), okStart && okEnd && b >= 0
}
