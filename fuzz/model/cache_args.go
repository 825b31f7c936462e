package model

import (
	"math"
	"slices"
	"strings"

	"github.com/ringcache/ringcache/fuzz"
)

// cacheArgs reads the fields of an operation on a cache. The first error stays, so that an
// operation reads all its fields and checks once.
type cacheArgs struct {
	fields map[string]any // those that are not null, see asParsed
	err    error
}

// readArgs refuses fields other than those known, a list with spaces between. A null counts as
// absent.
func readArgs(op fuzz.Op, known string) *cacheArgs {
	a := &cacheArgs{fields: map[string]any{}}
	for name, v := range op.Args {
		if !slices.Contains(strings.Fields(known), name) {
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

func (a *cacheArgs) fail(format string, args ...any) {
	if a.err == nil {
		a.err = refuseCache("invalid", format, args...)
	}
}

// fieldOr returns a field of type T, or absent.
func fieldOr[T any](a *cacheArgs, name string, absent T) T {
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
func field[T any](a *cacheArgs, name string) T {
	if _, there := a.fields[name]; !there {
		a.fail("field %q is missing", name)
	}
	var absent T
	return fieldOr(a, name, absent)
}

// capacity is the field of that name, in bytes, perhaps with a fraction.
func (a *cacheArgs) capacity() float64 {
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
func (a *cacheArgs) release(otherwise Release) Release {
	version := fieldOr(a, "generation", "")
	if version == "" {
		return otherwise
	}
	r, err := Lookup(version)
	if err != nil && a.err == nil {
		a.err = refuseCache("unsupported", "%v", err)
	}
	return r
}
