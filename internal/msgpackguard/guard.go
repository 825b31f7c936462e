// Package msgpackguard bounds a MessagePack document before anything decodes
// it. Five bytes of MessagePack can declare 2^32 elements; a decoder that
// believes them allocates for all of them. Check walks the document once,
// without allocating, and refuses every declared length that the bytes which
// really follow cannot hold.
package msgpackguard

import (
	"encoding/binary"
	"fmt"
)

// MaxDepth is the deepest nesting any Limits can allow.
const MaxDepth = 128

// Limits bounds what Check accepts. The zero value allows MaxDepth levels.
type Limits struct {
	// Depth is the deepest nesting of arrays and maps; 0 or more than MaxDepth
	// means MaxDepth.
	Depth int
}

func (l Limits) depth() int {
	if l.Depth <= 0 || l.Depth > MaxDepth {
		return MaxDepth
	}
	return l.Depth
}

// Error reports where and why a document was refused.
type Error struct {
	// Offset is the byte at which the refused value starts.
	Offset int
	// Problem is what is wrong with it.
	Problem string
}

func (e *Error) Error() string {
	return fmt.Sprintf("msgpackguard: byte %d: %s", e.Offset, e.Problem)
}

// Check reports whether doc is exactly one well-formed value, nested no deeper
// than l allows, with nothing behind it. It takes time linear in len(doc) and
// allocates only for an error, which is an *[Error].
func Check(doc []byte, l Limits) error {
	end, err := Next(doc, 0, l)
	if err != nil {
		return err
	}
	if end != len(doc) {
		return &Error{Offset: end, Problem: fmt.Sprintf("%d bytes follow the document", len(doc)-end)}
	}
	return nil
}

// Next returns the offset behind the one value that starts at doc[off], under
// the same rules as Check; bytes behind the value are not looked at.
func Next(doc []byte, off int, l Limits) (end int, err error) {
	if off < 0 || off > len(doc) {
		return 0, &Error{Offset: off, Problem: "offset is outside the document"}
	}
	if off < len(doc) && (doc[off] < 0x80 || doc[off] >= 0xe0) {
		return off + 1, nil // a small integer, the most frequent value
	}
	if v, ok := header(doc[off:]); ok && !v.container && !v.invalid && v.payload <= uint64(len(doc)-off-v.size) {
		return off + v.size + int(v.payload), nil // no other needs the array below
	}
	var (
		depth   = l.depth()
		open    [MaxDepth]uint64 // values still to come on each open level
		level   int
		pending = uint64(1) // values still to come on all levels together
		pos     = off
	)
	for pending > 0 {
		if pos < len(doc) && level > 0 && (doc[pos] < 0x80 || doc[pos] >= 0xe0) {
			pos++ // a small integer, without the work for others
			pending--
			for open[level-1]--; level > 0 && open[level-1] == 0; {
				level--
			}
			continue
		}
		v, ok := header(doc[pos:])
		if !ok {
			return 0, &Error{Offset: pos, Problem: "the document ends inside a value"}
		}
		if v.invalid {
			return 0, &Error{Offset: pos, Problem: "byte 0xc1 is no MessagePack type"}
		}
		left := uint64(len(doc) - pos - v.size)
		if v.payload > left {
			return 0, &Error{Offset: pos, Problem: fmt.Sprintf("declares %d bytes, %d are left", v.payload, left)}
		}
		at := pos
		pos += v.size + int(v.payload)

		pending--
		if level > 0 {
			open[level-1]--
		}
		if v.container {
			// Every value takes at least one byte, so that what is still to come
			// can never outnumber the bytes that are left.
			if pending+v.values > left {
				return 0, &Error{
					Offset: at, Problem: fmt.Sprintf("declares %d values, %d bytes are left for them and %d others",
						v.values, left, pending),
				}
			}
			if level == depth {
				return 0, &Error{Offset: at, Problem: fmt.Sprintf("nested deeper than %d levels", depth)}
			}
			open[level] = v.values
			level++
			pending += v.values
		}
		for level > 0 && open[level-1] == 0 {
			level--
		}
	}
	return pos, nil
}

// value is what the first bytes of a MessagePack value declare.
type value struct {
	size      int    // bytes of the header, scalars included
	payload   uint64 // bytes behind the header (str, bin, ext)
	values    uint64 // values behind the header (a map has two for each pair)
	container bool
	invalid   bool
}

// header reads the header at the start of b; ok is false if b ends inside it.
func header(b []byte) (v value, ok bool) {
	if len(b) == 0 {
		return value{}, false
	}
	c := b[0]
	switch {
	case c < 0x80 || c >= 0xe0: // fixint
		return value{size: 1}, true
	case c < 0x90: // fixmap
		return value{size: 1, values: 2 * uint64(c&0x0f), container: true}, true
	case c < 0xa0: // fixarray
		return value{size: 1, values: uint64(c & 0x0f), container: true}, true
	case c < 0xc0: // fixstr
		return value{size: 1, payload: uint64(c & 0x1f)}, true
	}
	switch c {
	case 0xc0, 0xc2, 0xc3: // nil, false, true
		return value{size: 1}, true
	case 0xc1:
		return value{size: 1, invalid: true}, true
	case 0xc4, 0xc5, 0xc6: // bin 8, 16, 32
		return sized(b, 1<<(c-0xc4), 0)
	case 0xc7, 0xc8, 0xc9: // ext 8, 16, 32: the type byte follows the length
		return sized(b, 1<<(c-0xc7), 1)
	case 0xca, 0xce, 0xd2: // float 32, uint 32, int 32
		return fixed(b, 5)
	case 0xcb, 0xcf, 0xd3: // float 64, uint 64, int 64
		return fixed(b, 9)
	case 0xcc, 0xd0: // uint 8, int 8
		return fixed(b, 2)
	case 0xcd, 0xd1: // uint 16, int 16
		return fixed(b, 3)
	case 0xd4, 0xd5, 0xd6, 0xd7, 0xd8: // fixext 1, 2, 4, 8, 16
		v, ok = fixed(b, 2)
		v.payload = 1 << (c - 0xd4)
		return v, ok
	case 0xd9, 0xda, 0xdb: // str 8, 16, 32
		return sized(b, 1<<(c-0xd9), 0)
	case 0xdc, 0xdd: // array 16, 32
		v, ok = sized(b, 2<<(c-0xdc), 0)
		return value{size: v.size, values: v.payload, container: true}, ok
	default: // 0xde, 0xdf: map 16, 32
		v, ok = sized(b, 2<<(c-0xde), 0)
		return value{size: v.size, values: 2 * v.payload, container: true}, ok
	}
}

func fixed(b []byte, size int) (value, bool) {
	return value{size: size}, len(b) >= size
}

// sized reads a big-endian length of width bytes behind the type byte; extra
// more bytes belong to the header.
func sized(b []byte, width, extra int) (value, bool) {
	v := value{size: 1 + width + extra}
	if len(b) < v.size {
		return v, false
	}
	switch width {
	case 1:
		v.payload = uint64(b[1])
	case 2:
		v.payload = uint64(binary.BigEndian.Uint16(b[1:]))
	default:
		v.payload = uint64(binary.BigEndian.Uint32(b[1:]))
	}
	return v, true
}
