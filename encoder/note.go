package encoder

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/ringcache/ringcache/serde"
)

// A Note describes the bytes of an encoder's output. Its text is the Note of a
// [github.com/ringcache/ringcache/tier.Object]: the dtype as torch prints it and the dimensions, "bfloat16
// 256 5376".
type Note struct {
	DType serde.DType
	Shape []int // empty for a scalar
}

// ParseNote is the reverse of String. The error wraps fs.ErrInvalid: a Note has one text, so
// other spellings are refused.
func ParseNote(text []byte) (Note, error) {
	words := strings.Split(string(text), " ")
	n := Note{DType: serde.DType(words[0]), Shape: make([]int, 0, len(words)-1)}
	for _, w := range words[1:] {
		dim, err := strconv.Atoi(w)
		if err != nil || strconv.Itoa(dim) != w {
			return Note{}, fmt.Errorf("encoder: the note %.80q is no dtype and shape: %w", text, fs.ErrInvalid)
		}
		n.Shape = append(n.Shape, dim)
	}
	if _, err := n.Size(); err != nil {
		return Note{}, fmt.Errorf("encoder: the note %.80q is no dtype and shape: %w", text, err)
	}
	return n, nil
}

// String returns the text.
func (n Note) String() string {
	b := []byte(n.DType)
	for _, dim := range n.Shape {
		b = strconv.AppendInt(append(b, ' '), int64(dim), 10)
	}
	return string(b)
}

// Size returns the number of bytes that dtype and shape ask for. The error wraps fs.ErrInvalid.
func (n Note) Size() (int64, error) {
	size, err := (&serde.Tensor{DType: n.DType, Shape: n.Shape}).NBytes()
	return int64(size), err
}
