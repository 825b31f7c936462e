// Package remotemetadata reads LMCache's RemoteMetadata (lmcache/v1/protocol.py of 0.5.6), which its
// connectors keep with the bytes of a chunk: four-byte integers in the byte order of the machine, which is
// little-endian on every one that LMCache runs on. They are the length of the bytes, the format, and for each
// group of tensors the dtype and four dimensions.
package remotemetadata

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/ringcache/ringcache/internal/torchdtype"
)

// Bytes of a RemoteMetadata: Fixed, and PerGroup for each of 1 to MaxGroups groups.
const (
	Fixed     = 8
	PerGroup  = 20
	MaxGroups = 64
	Min       = Fixed + PerGroup
	Max       = Fixed + PerGroup*MaxGroups
)

const maxFormat = 8 // of LMCache's table of formats

// Check reports what keeps b from being a RemoteMetadata.
func Check(b []byte) error {
	if len(b) < Min || len(b) > Max || (len(b)-Fixed)%PerGroup != 0 {
		return fmt.Errorf("%d bytes are not %d and %d for each of 1 to %d groups", len(b), Fixed, PerGroup, MaxGroups)
	}
	if n := Length(b); n < 0 {
		return fmt.Errorf("the length is %d", n)
	}
	return nil
}

// dtypes are torch's names of LMCache's numbers. It reads 1 as well, and writes 2; 0 is none.
var dtypes = [...]string{
	1: "float16", 2: "float16", 3: "bfloat16", 4: "float32", 5: "float64", 6: "uint8", 7: "float8_e4m3fn",
	8: "float8_e5m2",
}

// Number returns the number that LMCache writes for the dtype with torch's name, 0 if it has none.
func Number(dtype string) int {
	for i := len(dtypes) - 1; i > 0; i-- {
		if dtypes[i] == dtype {
			return i
		}
	}
	return 0
}

// DType returns torch's name of the dtype that LMCache reads from a number, "" if there is none.
func DType(number uint32) string {
	if number >= uint32(len(dtypes)) {
		return ""
	}
	return dtypes[number]
}

// AppendOne appends the RemoteMetadata of one group of tensors: the format, torch's name of the dtype, and up
// to four dimensions. dtypes that LMCache has no number for, and tensors without elements or of 2 GiB or
// more, are refused.
func AppendOne(dst []byte, format int, dtype string, shape ...int) ([]byte, error) {
	number := Number(dtype)
	known := torchdtype.Find(dtype)
	if number == 0 || known == nil {
		return nil, fmt.Errorf("LMCache has no number for the dtype %q", dtype)
	}
	if format < 0 || format > maxFormat || len(shape) < 1 || len(shape) > 4 {
		return nil, fmt.Errorf("the format %d and %d dimensions", format, len(shape))
	}
	size := known.Size
	for _, n := range shape {
		if n < 1 || size > math.MaxInt32/n {
			return nil, fmt.Errorf("a tensor of the shape %v has no elements, or 2 GiB or more", shape)
		}
		size *= n
	}
	var dims [4]int
	copy(dims[:], shape)
	for _, n := range append([]int{size, format, number}, dims[:]...) {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(n))
	}
	return dst, nil
}

// CheckStrictly is Check, and refuses formats, dtypes and dimensions that LMCache does not have.
func CheckStrictly(b []byte) error {
	if err := Check(b); err != nil {
		return err
	}
	if f := word(b, 4); f < 0 || f > maxFormat {
		return fmt.Errorf("the format is %d", f)
	}
	for at := Fixed; at < len(b); at += PerGroup {
		if d := word(b, at); d < 0 || d >= int64(len(dtypes)) {
			return fmt.Errorf("a dtype is %d", d)
		}
		for i := 1; i <= 4; i++ {
			if word(b, at+4*i) < 0 {
				return errors.New("a dimension is negative")
			}
		}
	}
	return nil
}

// Length returns the length of the bytes that a RemoteMetadata of at least four bytes describes.
func Length(b []byte) int64 { return word(b, 0) }

func word(b []byte, at int) int64 { return int64(int32(binary.LittleEndian.Uint32(b[at:]))) }
