package safetensors

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"
)

// AppendHeader appends the header of a file to dst. The caller sets Name, DType and Shape of the tensors.
// AppendHeader sorts them into the library's order, by type and then by name, sets Offset
// and Size, and the bytes of the tensors must follow the header in that order. Keys of metadata are sorted.
// (The library writes them in no order.) If metadata is nil, the file has none.
//
// What can't be in a file is an fs.ErrInvalid, and dst stays as it is: a type that the format does
// not have, sizes that overflow or are no whole bytes, two tensors of one name, text that is not UTF-8, the
// name "__metadata__".
func AppendHeader(dst []byte, metadata map[string]string, tensors []Tensor) ([]byte, error) {
	slices.SortFunc(tensors, func(a, b Tensor) int {
		return cmp.Or(cmp.Compare(dtypes[b.DType].rank, dtypes[a.DType].rank), cmp.Compare(a.Name, b.Name))
	})
	if err := place(tensors); err != nil {
		return dst, err
	}
	start := len(dst)
	out, err := appendJSON(append(dst, make([]byte, lengthSize)...), metadata, tensors)
	if err != nil {
		return dst, err
	}
	for (len(out)-start)%8 != 0 {
		out = append(out, ' ')
	}
	length := len(out) - start
	if length-lengthSize > maxHeader {
		return dst, fmt.Errorf("safetensors: the header has %d bytes, the most is %d: %w",
			length-lengthSize, maxHeader, fs.ErrInvalid)
	}
	binary.LittleEndian.PutUint64(out[start:], uint64(length-lengthSize))
	for i := range tensors {
		tensors[i].Offset += int64(length)
	}
	return out, nil
}

// place sets offsets from the first byte of the first tensor, and sizes.
func place(tensors []Tensor) error {
	names := make(map[string]bool, len(tensors))
	end := int64(0)
	for i := range tensors {
		t := &tensors[i]
		if names[t.Name] || t.Name == metadataName {
			return fmt.Errorf("safetensors: a tensor can't have the name %.80q here: %w", t.Name, fs.ErrInvalid)
		}
		names[t.Name] = true
		size, ok := byteSize(t.DType, t.Shape)
		// 2^62 leaves room for the header.
		if !ok || size > 1<<62-end {
			return fmt.Errorf("safetensors: tensor %.80q can't be %.80q %s: %w",
				t.Name, t.DType, shapeText(t.Shape), fs.ErrInvalid)
		}
		t.Offset, t.Size = end, size
		end += size
	}
	return nil
}

func appendJSON(dst []byte, metadata map[string]string, tensors []Tensor) (_ []byte, err error) {
	dst = append(dst, '{')
	if metadata != nil {
		dst = append(dst, `"__metadata__":{`...)
		for i, key := range slices.Sorted(maps.Keys(metadata)) {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, err = appendString(dst, key); err != nil {
				return nil, err
			}
			dst = append(dst, ':')
			if dst, err = appendString(dst, metadata[key]); err != nil {
				return nil, err
			}
		}
		dst = append(dst, '}')
	}
	for i, t := range tensors {
		if i > 0 || metadata != nil {
			dst = append(dst, ',')
		}
		if dst, err = appendString(dst, t.Name); err != nil {
			return nil, err
		}
		dst = append(dst, `:{"dtype":"`...)
		dst = append(dst, t.DType...)
		dst = append(dst, `","shape":[`...)
		for i, dim := range t.Shape {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = strconv.AppendInt(dst, int64(dim), 10)
		}
		dst = append(dst, `],"data_offsets":[`...)
		dst = strconv.AppendInt(dst, t.Offset, 10)
		dst = append(dst, ',')
		dst = strconv.AppendInt(dst, t.Offset+t.Size, 10)
		dst = append(dst, `]}`...)
	}
	return append(dst, '}'), nil
}

// appendString escapes as the library does: quotes, backslashes and control characters, and
// nothing else.
func appendString(dst []byte, s string) ([]byte, error) {
	if !utf8.ValidString(s) {
		return nil, fmt.Errorf("safetensors: %.80q is not UTF-8: %w", s, fs.ErrInvalid)
	}
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	start := 0
	for i := range len(s) {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[start:i]...)
		start = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, `\b`...)
		case '\t':
			dst = append(dst, `\t`...)
		case '\n':
			dst = append(dst, `\n`...)
		case '\f':
			dst = append(dst, `\f`...)
		case '\r':
			dst = append(dst, `\r`...)
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"'), nil
}
