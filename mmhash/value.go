package mmhash

import (
	"encoding/json"
	"fmt"
	"math/big"
	"reflect"
	"strconv"
	"strings"
)

// Entry is a value with a name: a keyword argument, or an entry of a Python dict.
// See docs/decisions.md, "A Python value is a Go value of a listed type".
type Entry struct {
	Key string
	// Value is the Go value that stands for a Python object. Nothing is converted:
	// a value of any type but these is refused with a [ValueError] that names the
	// type.
	//
	//	nil                     None
	//	bool                    a bool. As a leaf it is one byte: True and b"\x01" have the same hash
	//	int, int64, uint64,     an int from -2^63 to 2^64-1. Two's complement is hashed: -1 and 2^64-1 have
	//	*[big.Int]              the same hash. Of larger ints vLLM hashes a pointer, so they are refused
	//	float64                 a float, whose bits are hashed. Go's math.NaN differs in one bit from
	//	                        Python's float("nan") and stands for it
	//	[json.Number]           what Python's json module makes of it: an int, unless it has a fraction or an exponent
	//	string                  a str, which must be valid UTF-8. Its hash is that of the same text as bytes
	//	[]byte                  bytes, or a memoryview of some. They are not copied
	//	[]any                   a list or a tuple
	//	[][Entry]               a dict in its order of insertion, which is hashed: the same entries in another
	//	                        order have another hash. Keys are what Python's str makes of them
	//	*[Reader]               bytes that are read while they are hashed
	//	*[Array], *[Tensor]     a numpy array, a torch tensor
	//	*[Image]                a PIL image; [EncodedImage] and [EncodedVideo] come with their files
	//	[Pickled]               any other object, by its pickle
	//
	// encoding/json makes a float64 of every number, and 1 and 1.0 have different
	// hashes: decode a client's arguments with UseNumber.
	Value any
}

// Pickled is a value that vLLM has no rule for and so hashes by its default
// pickle, with a warning: numpy scalars other than float64, complex numbers, any
// other object. The caller supplies the pickle. It depends on the versions of
// Python and of the library that the object comes from, so that two servers may
// well disagree.
type Pickled []byte

// refuse records that values of v's type can't be hashed. (The type alone is
// formatted: v itself would escape to the heap.)
func (s *stream) refuse(v any) {
	s.fail(errInvalid, "a %s stands for no Python object; Entry.Value lists the types that do", typeName(v))
}

// typeName is what the verb %T writes.
func typeName(v any) string {
	if v == nil {
		return "<nil>"
	}
	return reflect.TypeOf(v).String()
}

// parseInt returns the int64 or uint64 of a decimal number.
func parseInt(decimal string) (any, error) {
	if i, err := strconv.ParseInt(decimal, 10, 64); err == nil {
		return i, nil
	}
	if u, err := strconv.ParseUint(decimal, 10, 64); err == nil {
		return u, nil
	}
	return nil, &ValueError{Problem: fmt.Sprintf("the integer %.40s does not fit 64 bits; of such a number vLLM hashes "+
		"a pointer, which never matches: pass it as text", decimal), sentinel: ErrUnsupported}
}

// bigInt returns the int64 or uint64 of a number.
func bigInt(n *big.Int) (any, error) {
	switch {
	case n == nil:
		return nil, &ValueError{Problem: "it is a nil *big.Int", sentinel: errInvalid}
	case n.IsInt64():
		return n.Int64(), nil
	case n.IsUint64():
		return n.Uint64(), nil
	case n.BitLen() > maxIntBits:
		return nil, &ValueError{
			Problem: fmt.Sprintf("an integer of %d bits does not fit 64", n.BitLen()), sentinel: ErrUnsupported,
		}
	}
	return parseInt(n.String())
}

// maxIntBits bounds the work of printing a number that is refused.
const maxIntBits = 1 << 10

// jsonNumber returns the int64, uint64 or float64 that Python's json makes of n.
func jsonNumber(n json.Number) (any, error) {
	text := n.String()
	digit := func(c byte) bool { return '0' <= c && c <= '9' }
	switch {
	// A JSON value between digits is a number, with no space around it.
	case !json.Valid([]byte(text)) || text[0] != '-' && !digit(text[0]) || !digit(text[len(text)-1]):
		return nil, &ValueError{Problem: fmt.Sprintf("%.40q is no JSON number", text), sentinel: errInvalid}
	case strings.ContainsAny(text, ".eE"):
		f, _ := strconv.ParseFloat(text, 64) // infinite where it is out of range, as in Python
		return f, nil
	}
	return parseInt(text)
}

// quote shortens what a caller may have made very long. (The copy keeps escape
// analysis from putting every value on the heap for the sake of an error.)
func quote(s string) string { return fmt.Sprintf("%.80q", strings.Clone(s)) }
