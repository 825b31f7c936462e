package mmhash

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Value is what can be hashed. The types that implement it are those of this
// package: [Bool], [Int], [Uint], [Float], [Str], [Bytes], [Reader], [List],
// [Map], [*Array], [*Tensor], [*Image], [*EncodedImage], [*EncodedVideo] and
// [Pickled]. A nil Value is Python's None.
type Value interface{ isValue() }

// Entry is a value with a name: a keyword argument, or an entry of a [Map].
type Entry struct {
	Key   string
	Value Value
}

// Arg makes a keyword argument.
func Arg(name string, v Value) Entry { return Entry{Key: name, Value: v} }

type (
	// Bool is Python's bool. As a leaf it is one byte: True and b"\x01" have
	// the same hash.
	Bool bool
	// Int is a Python int from -2^63 to 2^63-1.
	Int int64
	// Uint is a Python int from 0 to 2^64-1. Two's complement is hashed: -1 and
	// 2^64-1 have the same hash.
	Uint uint64
	// Float is a Python float; its bits are hashed. Go's math.NaN differs in
	// one bit from Python's float("nan") and stands for it.
	Float float64
	// Str is a Python str and must be valid UTF-8. Its hash is that of the same
	// text as bytes.
	Str string
	// Bytes is Python bytes, or a memoryview of some. They are not copied.
	Bytes []byte
	// List is a Python list or tuple.
	List []Value
	// Map is a Python dict in its order of insertion, which is hashed: the
	// same entries in another order have another hash. Keys are what Python's
	// str makes of them.
	Map []Entry
	// Pickled is a value that vLLM has no rule for and so hashes by its default
	// pickle, with a warning: numpy scalars other than float64, complex
	// numbers, any other object. The caller supplies the pickle. It depends on
	// the versions of Python and of the library that the object comes from, so
	// that two servers may well disagree.
	Pickled []byte
)

func (Bool) isValue()          {}
func (Int) isValue()           {}
func (Uint) isValue()          {}
func (Float) isValue()         {}
func (Str) isValue()           {}
func (Bytes) isValue()         {}
func (Reader) isValue()        {}
func (List) isValue()          {}
func (Map) isValue()           {}
func (Pickled) isValue()       {}
func (*Array) isValue()        {}
func (*Tensor) isValue()       {}
func (*Image) isValue()        {}
func (*EncodedImage) isValue() {}
func (*EncodedVideo) isValue() {}

// ParseInt returns the [Int] or [Uint] of a decimal number. Of one that 64 bits
// can't hold vLLM hashes a pointer, so that two equal numbers have different
// hashes: the error wraps [ErrUnsupported].
func ParseInt(decimal string) (Value, error) {
	i, err := strconv.ParseInt(decimal, 10, 64)
	if err == nil {
		return Int(i), nil
	}
	u, uerr := strconv.ParseUint(decimal, 10, 64)
	if uerr == nil {
		return Uint(u), nil
	}
	if errors.Is(err, strconv.ErrRange) {
		return nil, &ValueError{Problem: fmt.Sprintf("the integer %.40s does not fit 64 bits; of such a number vLLM hashes "+
			"a pointer, which never matches: pass it as text", decimal), sentinel: ErrUnsupported}
	}
	return nil, &ValueError{Problem: fmt.Sprintf("%.40q is no decimal integer", decimal), sentinel: ErrInvalid}
}

// quote shortens what a caller may have made very long. (The copy keeps escape
// analysis from putting every value on the heap for the sake of an error.)
func quote(s string) string { return fmt.Sprintf("%.80q", strings.Clone(s)) }
