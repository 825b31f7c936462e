package generate

import (
	"bytes"
	"encoding/hex"
)

// value returns a value of a key, mostly of the size and bytes that it always has, as a hash of
// the content would have it.
func (s *pairScript) value(key string) map[string]any {
	size := int(key[0] - 'a' + 2)
	switch s.Int(20) {
	case 0: // exactly what a cache holds, one more, one less
		size = max(int(s.size)+s.Int(3)-1, 0)
	case 1:
		size = s.Int(int(s.size) + 2)
	case 2:
		return s.numbers(key)
	case 3:
		return map[string]any{"type": "tensor", "data": bytesTensor(key, size)}
	}
	return itemOf(bytesTensor(key, size))
}

// numbers returns an item whose size depends on Python's sizes of numbers.
func (s *pairScript) numbers(key string) map[string]any {
	switch s.Int(6) {
	case 0:
		return itemOf(0)
	case 1:
		return itemOf([]any{1 << 30, -1, 1<<60 - 1, false})
	case 2:
		return itemOf([]any{1.5, nil, []any{true}})
	case 3:
		return itemOf(nil)
	case 4: // has no size
		return itemOf([]any{})
	}
	return itemOf([]any{bytesTensor(key, 3), 7},
		map[string]any{"dtype": "int16", "shape": []any{2, 1}, "hex": "01000200"})
}

func itemOf(data ...any) map[string]any {
	fields := []any{}
	for i, d := range data {
		fields = append(fields, map[string]any{"name": string(rune('x' + i)), "data": d,
			"field": map[string]any{"kind": "batched"}})
	}
	return map[string]any{"type": "item", "fields": fields}
}

func bytesTensor(key string, size int) map[string]any {
	return map[string]any{"dtype": "uint8", "shape": []any{size},
		"hex": hex.EncodeToString(bytes.Repeat([]byte(key), size))}
}
