package safetensors

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth is the deepest nesting of arrays and objects that the library's JSON parser takes.
const maxDepth = 127

// A reader goes through the JSON of a header. It takes what the library takes (serde_json
// with its default features into structs that serde derives), which is not what
// encoding/json takes: numbers, surrogates, duplicate keys and depth are different. Strings without escapes
// are parts of text, so that they need no memory.
type reader struct {
	text  string
	i     int
	depth int
}

func (r *reader) fail(format string, args ...any) error {
	return fmt.Errorf("%w: header at byte %d: %s", ErrFormat, r.i, fmt.Sprintf(format, args...))
}

// parseJSON returns the header with offsets that count from the first tensor's byte, in the
// order of the text.
func parseJSON(text string) (*Header, error) {
	r := &reader{text: text}
	h := &Header{}
	places := make(map[string]int)
	hasMetadata := false
	err := r.object(func(key string) error {
		if key == metadataName {
			if hasMetadata {
				return r.fail("a second %s", metadataName)
			}
			hasMetadata = true
			m, err := r.metadata()
			h.Metadata = m
			return err
		}
		t, err := r.tensor()
		if err != nil {
			return err
		}
		t.Name = key
		if i, twice := places[key]; twice { // the last one counts
			h.Tensors[i] = t
			return nil
		}
		places[key] = len(h.Tensors)
		h.Tensors = append(h.Tensors, t)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if r.peek() != 0 || r.i < len(text) {
		return nil, r.fail("something behind the header's end")
	}
	return h, nil
}

// metadata reads an object of strings, or null, which is none.
func (r *reader) metadata() (map[string]string, error) {
	if r.peek() == 'n' {
		return nil, r.word("null")
	}
	m := make(map[string]string)
	err := r.object(func(key string) error {
		value, err := r.str()
		m[key] = value
		return err
	})
	return m, err
}

// The fields of a tensor, in the order that the array form has.
var fields = [...]string{"dtype", "shape", "data_offsets"}

// tensor reads a tensor, which is an object with the three fields and any others, or an
// array of the three.
func (r *reader) tensor() (t Tensor, err error) {
	field := []func(*Tensor) error{r.dtype, r.shape, r.offsets}
	if r.peek() == '[' {
		n := 0
		err := r.array(func() error {
			if n == len(field) {
				return r.fail("a tensor with more than %d elements", n)
			}
			n++
			return field[n-1](&t)
		})
		if err == nil && n < len(field) {
			err = r.fail("a tensor with %d elements", n)
		}
		return t, err
	}
	var seen [len(fields)]bool
	err = r.object(func(key string) error {
		for i, name := range fields {
			if key != name {
				continue
			}
			if seen[i] {
				return r.fail("a second %s", name)
			}
			seen[i] = true
			return field[i](&t)
		}
		return r.skip()
	})
	for i, name := range fields {
		if err == nil && !seen[i] {
			err = r.fail("a tensor without %s", name)
		}
	}
	return t, err
}

// dtype reads "U8", or {"U8":null}, which means the same to the library.
func (r *reader) dtype(t *Tensor) error {
	set := func(name string) error {
		d, ok := dtypes[DType(name)]
		if !ok {
			return r.fail("dtype %.40q is none of the format", name)
		}
		t.DType = d.name
		return nil
	}
	if r.peek() != '{' {
		name, err := r.str()
		if err != nil {
			return err
		}
		return set(name)
	}
	n := 0
	err := r.object(func(key string) error {
		n++
		if err := set(key); err != nil {
			return err
		}
		return r.word("null")
	})
	if err == nil && n != 1 {
		err = r.fail("a dtype of %d names", n)
	}
	return err
}

func (r *reader) shape(t *Tensor) error {
	t.Shape = []int{}
	return r.array(func() error {
		dim, err := r.unsigned()
		if err != nil {
			return err
		}
		if dim > math.MaxInt {
			return r.fail("dimension %d is too large", dim)
		}
		t.Shape = append(t.Shape, int(dim))
		return nil
	})
}

func (r *reader) offsets(t *Tensor) error {
	var at [2]uint64
	n := 0
	err := r.array(func() (err error) {
		if n == len(at) {
			return r.fail("more than two offsets")
		}
		at[n], err = r.unsigned()
		n++
		return err
	})
	switch {
	case err != nil:
		return err
	case n < len(at):
		return r.fail("%d offsets", n)
	}
	// No file is that long. What is larger than a file is refused together with all that does not fit it, so that it
	// is fine here if a later tensor of the same name takes its place.
	t.Offset = clamp(at[0])
	t.Size = clamp(at[1]) - t.Offset
	return nil
}

// clamp keeps offsets, and differences of offsets, inside an int64.
func clamp(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

// object reads an object, and calls each behind every key.
func (r *reader) object(each func(key string) error) error {
	return r.nested('{', '}', func() error {
		if r.peek() != '"' {
			return r.fail("expected a key")
		}
		key, err := r.str()
		if err != nil {
			return err
		}
		if r.peek() != ':' {
			return r.fail("expected a colon")
		}
		r.i++
		return each(key)
	})
}

// array reads an array, and calls each in front of every element.
func (r *reader) array(each func() error) error { return r.nested('[', ']', each) }

// nested reads what is between two brackets, with commas between, and calls each in front of every element.
func (r *reader) nested(open, end byte, each func() error) error {
	if r.peek() != open {
		return r.fail("expected %q", open)
	}
	if r.depth == maxDepth {
		return r.fail("more than %d arrays and objects inside each other", maxDepth)
	}
	r.depth++
	r.i++
	for first := true; r.peek() != end; first = false {
		if !first {
			if r.peek() != ',' {
				return r.fail("expected a comma or %q", end)
			}
			r.i++ // a value must follow, which each insists on
		}
		if err := each(); err != nil {
			return err
		}
	}
	r.i++
	r.depth--
	return nil
}

// peek skips white space and returns the next byte, 0 at the end. (A zero byte in the text is
// never what a caller wants.)
func (r *reader) peek() byte {
	for ; r.i < len(r.text); r.i++ {
		switch c := r.text[r.i]; c {
		case ' ', '\n', '\t', '\r':
		default:
			return c
		}
	}
	return 0
}

func (r *reader) word(w string) error {
	r.peek()
	if !strings.HasPrefix(r.text[r.i:], w) {
		return r.fail("expected %s", w)
	}
	r.i += len(w)
	return nil
}

// skip reads any value.
func (r *reader) skip() error {
	switch c := r.peek(); c {
	case '{':
		return r.object(func(string) error { return r.skip() })
	case '[':
		return r.array(r.skip)
	case '"':
		_, err := r.str()
		return err
	case 'n':
		return r.word("null")
	case 't':
		return r.word("true")
	case 'f':
		return r.word("false")
	default:
		return r.number(nil)
	}
}

// str reads a string. Surrogates must come in pairs.
func (r *reader) str() (string, error) {
	if r.peek() != '"' {
		return "", r.fail("expected a string")
	}
	r.i++
	start := r.i
	var out []byte // nil as long as there was no escape
	for ; r.i < len(r.text); r.i++ {
		switch c := r.text[r.i]; {
		case c == '"':
			whole := r.text[start:r.i]
			if out != nil {
				whole = string(append(out, whole...))
			}
			r.i++
			return whole, nil
		case c < 0x20:
			return "", r.fail("a control character in a string")
		case c == '\\':
			out = append(out, r.text[start:r.i]...)
			char, err := r.escape()
			if err != nil {
				return "", err
			}
			out = utf8.AppendRune(out, char)
			start = r.i
			r.i-- // for the loop's step
		}
	}
	return "", r.fail("a string without an end")
}

// escape reads an escape.
func (r *reader) escape() (rune, error) {
	rest := r.text[r.i:]
	if len(rest) < 2 {
		return 0, r.fail("a string without an end")
	}
	r.i += 2
	switch rest[1] {
	case '"', '\\', '/':
		return rune(rest[1]), nil
	case 'b':
		return '\b', nil
	case 'f':
		return '\f', nil
	case 'n':
		return '\n', nil
	case 'r':
		return '\r', nil
	case 't':
		return '\t', nil
	case 'u':
		r.i -= 2
		first, err := r.unit()
		if err != nil || !utf16.IsSurrogate(first) {
			return first, err
		}
		second, err := r.unit()
		if err != nil {
			return 0, err
		}
		if char := utf16.DecodeRune(first, second); char != utf8.RuneError {
			return char, nil
		}
		return 0, r.fail("half a surrogate pair")
	default:
		return 0, r.fail("escape %q", rest[:2])
	}
}

// unit reads \uXXXX.
func (r *reader) unit() (rune, error) {
	rest := r.text[r.i:]
	if len(rest) < 6 || rest[:2] != `\u` {
		return 0, r.fail("half a surrogate pair")
	}
	n, err := strconv.ParseUint(rest[2:6], 16, 16)
	if err != nil {
		return 0, r.fail("escape %q", rest[:6])
	}
	r.i += 6
	return rune(n), nil
}
