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
	fields map[string]any // as fuzz.Parse reads them
	err    error
}

// readArgs refuses fields other than those known, a list with spaces between. A null counts as
// absent.
func readArgs(op fuzz.Op, known string) *cacheArgs {
	a := &cacheArgs{}
	ops, err := fuzz.Parse(op.Line()) // so that numbers have one type, wherever the operation is from
	if err != nil {
		a.err = err
		return a
	}
	a.fields = ops[0].Args
	for name, v := range a.fields {
		if !slices.Contains(strings.Fields(known), name) {
			a.fail("unknown field %q", name)
		}
		if v == nil {
			delete(a.fields, name)
		}
	}
	return a
}

func (a *cacheArgs) fail(format string, args ...any) {
	if a.err == nil {
		a.err = refuse("invalid", format, args...)
	}
}

// get returns a field of type T, or absent.
func get[T any](a *cacheArgs, name string, absent T) T {
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

// need returns a field that must be there.
func need[T any](a *cacheArgs, name string) T {
	if _, there := a.fields[name]; !there {
		a.fail("field %q is missing", name)
	}
	var absent T
	return get(a, name, absent)
}

// capacity is the field of that name, in bytes, perhaps with a fraction.
func (a *cacheArgs) capacity() float64 {
	if n, ok := a.fields["capacity"].(int64); ok {
		a.fields["capacity"] = float64(n)
	}
	c := need[float64](a, "capacity")
	if c < 0 || c > math.MaxInt64/2 {
		a.fail("capacity of %v bytes", c)
	}
	return c
}

// release is that of the field generation, or the one given.
func (a *cacheArgs) release(otherwise Release) Release {
	version := get(a, "generation", "")
	if version == "" {
		return otherwise
	}
	r, err := Lookup(version)
	if err != nil && a.err == nil {
		a.err = refuse("unsupported", "%v", err)
	}
	return r
}
