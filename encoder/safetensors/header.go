package safetensors

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/bits"
	"slices"
	"unicode/utf8"
)

// ErrFormat reports bytes that are not a safetensors file, or not all of one.
var ErrFormat = errors.New("safetensors: malformed file")

const (
	lengthSize = 8
	// maxHeader is the library's own limit of the JSON, in bytes.
	maxHeader = 100_000_000
	// metadataName is the key of the metadata beside the names of tensors.
	metadataName = "__metadata__"
)

// A Header describes a file.
type Header struct {
	// Metadata are texts of the file's writer; nil if the file has no metadata, which is not
	// the same file as one with empty metadata.
	Metadata map[string]string
	// Tensors are in the order of their bytes. Names are unique.
	Tensors []Tensor
	// Length is the number of bytes in front of the tensors' bytes.
	Length int64
}

// A Tensor describes the bytes of a tensor in a file.
type Tensor struct {
	Name  string
	DType DType
	Shape []int // empty for a scalar
	// Offset and Size are the place of the bytes, from the start of the file. [AppendHeader]
	// sets them.
	Offset, Size int64
}

// Bytes returns the tensor's bytes in the bytes of its whole file, without a copy. It panics
// if file is not the file that was parsed.
func (t *Tensor) Bytes(file []byte) []byte {
	return file[t.Offset : t.Offset+t.Size : t.Offset+t.Size]
}

// Parse parses the header of a whole file. The error wraps ErrFormat. The header does not refer to file.
func Parse(file []byte) (*Header, error) {
	if len(file) < lengthSize {
		return nil, tooSmall(int64(len(file)))
	}
	n, err := headerLength(file, int64(len(file)))
	if err != nil {
		return nil, err
	}
	return parse(string(file[lengthSize:lengthSize+n]), int64(len(file)))
}

// ReadHeader reads the header of a file of size bytes. It takes no memory for a header of more than most bytes,
// which is an fs.ErrInvalid; 0 is the library's limit, 100 MB. Other errors wrap ErrFormat, or
// io.ErrUnexpectedEOF if the file has less than size bytes, or are those of ReadAt.
func ReadHeader(file io.ReaderAt, size, most int64) (*Header, error) {
	if size < lengthSize {
		return nil, tooSmall(size)
	}
	// Nearly every header fits, so that one read is enough.
	head := make([]byte, min(size, 512))
	if err := readFull(file, head, 0); err != nil {
		return nil, err
	}
	n, err := headerLength(head, size)
	if err != nil {
		return nil, err
	}
	if most > 0 && lengthSize+n > most {
		return nil, fmt.Errorf("safetensors: the header has %d bytes, the most is %d here: %w",
			lengthSize+n, most, fs.ErrInvalid)
	}
	if have := int64(len(head)); lengthSize+n > have {
		head = append(head, make([]byte, lengthSize+n-have)...)
		if err := readFull(file, head[have:], have); err != nil {
			return nil, err
		}
	}
	return parse(string(head[lengthSize:lengthSize+n]), size)
}

func readFull(file io.ReaderAt, b []byte, offset int64) error {
	n, err := file.ReadAt(b, offset)
	switch {
	case n == len(b):
		return nil
	case err == nil || errors.Is(err, io.EOF):
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("safetensors: reading the header: %w", err)
}

func tooSmall(size int64) error {
	return fmt.Errorf("%w: %d bytes are too few for the length of a header", ErrFormat, size)
}

// headerLength returns the length of the JSON of a file of size bytes that starts with begin.
func headerLength(begin []byte, size int64) (int64, error) {
	n := binary.LittleEndian.Uint64(begin)
	if left := uint64(size - lengthSize); n > min(left, maxHeader) {
		return 0, fmt.Errorf("%w: the length of the header is %d, the file has %d bytes behind it and the most is %d",
			ErrFormat, n, left, maxHeader)
	}
	return int64(n), nil
}

func parse(text string, size int64) (*Header, error) {
	if !utf8.ValidString(text) {
		return nil, fmt.Errorf("%w: the header is not UTF-8", ErrFormat)
	}
	h, err := parseJSON(text)
	if err != nil {
		return nil, err
	}
	// Files of old versions are in any order.
	slices.SortStableFunc(h.Tensors, func(a, b Tensor) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Size, b.Size))
	})
	h.Length = lengthSize + int64(len(text))
	end := int64(0)
	for i := range h.Tensors {
		t := &h.Tensors[i]
		if t.Offset != end {
			return nil, fmt.Errorf("%w: tensor %.80q begins at %d, the one in front of it ends at %d",
				ErrFormat, t.Name, t.Offset, end)
		}
		want, ok := byteSize(t.DType, t.Shape)
		if !ok || want != t.Size {
			return nil, fmt.Errorf("%w: tensor %.80q is %s %s and has %d bytes",
				ErrFormat, t.Name, t.DType, shapeText(t.Shape), t.Size)
		}
		if end += t.Size; end > size {
			return nil, fmt.Errorf("%w: tensor %.80q ends behind the file", ErrFormat, t.Name)
		}
		t.Offset += h.Length
	}
	if h.Length+end != size {
		return nil, fmt.Errorf("%w: header and tensors have %d bytes, the file has %d", ErrFormat, h.Length+end, size)
	}
	return h, nil
}

// shapeText keeps texts of errors short.
func shapeText(shape []int) string {
	if len(shape) > 8 {
		return fmt.Sprintf("%v and %d more", shape[:8], len(shape)-8)
	}
	return fmt.Sprint(shape)
}

// byteSize multiplies a shape out. As in the library, a dimension of zero excuses only
// those behind it from fitting.
func byteSize(d DType, shape []int) (int64, bool) {
	n := uint64(1)
	for _, dim := range shape {
		if dim < 0 {
			return 0, false
		}
		hi, lo := bits.Mul64(n, uint64(dim))
		if hi != 0 {
			return 0, false
		}
		n = lo
	}
	width := uint64(d.Bits())
	hi, n := bits.Mul64(n, width)
	if hi != 0 || width == 0 || n%8 != 0 {
		return 0, false
	}
	return int64(n / 8), true
}
