package model

import (
	"math"
	"slices"
	"strings"

	"github.com/ringcache/ringcache/fuzz"
)

// args reads the fields of an operation. The first error stays, so that an operation reads all its
// fields and checks once.
type args struct {
	fields map[string]any // those that are not null, see asParsed
	err    error
}

// anyField is for operations whose fields are not listed.
const anyField = "*"

// readArgs refuses fields other than those known, a list with spaces between. A null counts as
// absent.
func readArgs(op fuzz.Op, known string) *args {
	a := &args{fields: map[string]any{}}
	for name, v := range op.Args {
		if known != anyField && !slices.Contains(strings.Fields(known), name) {
			a.fail("unknown field %q", name)
		}
		if v != nil {
			a.fields[name] = asParsed(v)
		}
	}
	return a
}

// asParsed returns a value of an operation as fuzz.Parse would read it, so that numbers have one
// type wherever the operation is from.
func asParsed(v any) any {
	switch v := v.(type) {
	case int:
		return int64(v)
	case uint32:
		return int64(v)
	case uint64:
		if v <= math.MaxInt64 {
			return int64(v)
		}
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = asParsed(x)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, x := range v {
			out[name] = asParsed(x)
		}
		return out
	case float64:
		if n := int64(v); float64(n) == v { // JSON has one kind of number
			return n
		}
	}
	return v
}

func (a *args) fail(format string, values ...any) {
	if a.err == nil {
		a.err = invalid(format, values...)
	}
}

// fieldOr returns a field of type T, or absent.
func fieldOr[T any](a *args, name string, absent T) T {
	v, there := a.fields[name]
	if !there {
		return absent
	}
	t, ok := v.(T)
	if !ok {
		a.fail("field %q: %v", name, v)
	}
	return t
}

// field returns a field that must be there.
func field[T any](a *args, name string) T {
	if _, there := a.fields[name]; !there {
		a.fail("field %q is missing", name)
	}
	var absent T
	return fieldOr(a, name, absent)
}

// text is a field that is a text, and "" if it is none.
func (a *args) text(name string) string {
	s, _ := a.fields[name].(string)
	return s
}

// integer is a field that is a whole number. ok is false if it is none.
func (a *args) integer(name string) (n int64, ok bool) {
	n, ok = a.fields[name].(int64)
	return n, ok
}

// ids is a list of numbers that a header can have as an id.
func (a *args) ids(name string) (ids []int64) {
	for _, v := range field[[]any](a, name) {
		id, ok := v.(int64)
		if !ok || id < 0 || id > math.MaxUint32 {
			a.fail("field %q: id %v", name, v)
		}
		ids = append(ids, id)
	}
	return ids
}

// capacity is the field of that name, in bytes, perhaps with a fraction.
func (a *args) capacity() float64 {
	if n, ok := a.fields["capacity"].(int64); ok {
		a.fields["capacity"] = float64(n)
	}
	c := field[float64](a, "capacity")
	if c < 0 || c > math.MaxInt64/2 {
		a.fail("capacity of %v bytes", c)
	}
	return c
}

// release is that of the field generation, or the one given.
func (a *args) release(otherwise Release) Release {
	version := fieldOr(a, "generation", "")
	if version == "" {
		return otherwise
	}
	r, err := Lookup(version)
	if err != nil && a.err == nil {
		a.err = refuse("unsupported", "%v", err)
	}
	return r
}
