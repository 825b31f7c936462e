package model

import (
	"fmt"
	"math"
	"slices"

	"github.com/ringcache/ringcache/fuzz"
)

// ringRefusal is an operation that was not performed.
type ringRefusal struct{ kind, text, upstream string }

func (e *ringRefusal) Error() string { return e.kind + ": " + e.text }

func invalid(format string, args ...any) error {
	return &ringRefusal{kind: "invalid", text: fmt.Errorf(format, args...).Error()}
}

// ringArgs reads the fields of an operation and keeps the first error.
type ringArgs struct {
	op  fuzz.Op
	err error
}

func newRingArgs(op fuzz.Op) (*ringArgs, error) {
	for name := range op.Args {
		if !slices.Contains(ringFields[op.Name], name) {
			return nil, invalid("%s has no field %q", op.Name, name)
		}
	}
	return &ringArgs{op: op}, nil
}

func (a *ringArgs) fail(name string) {
	if a.err == nil {
		a.err = invalid("field %q is missing, of another type, or out of range", name)
	}
}

func (a *ringArgs) text(name string, required bool) string {
	v := a.op.Args[name]
	text, ok := v.(string)
	if !ok && (v != nil || required) {
		a.fail(name)
	}
	return text
}

func (a *ringArgs) yes(name string) bool {
	v := a.op.Args[name]
	yes, ok := v.(bool)
	if !ok && v != nil {
		a.fail(name)
	}
	return yes
}

// number returns a number from lowest to highest; absent is what an absent field means, nil if
// the field must be there.
func (a *ringArgs) number(name string, lowest, highest int64, absent *int64) int64 {
	v := a.op.Args[name]
	if v == nil && absent != nil {
		return *absent
	}
	n, ok := ringInteger(v)
	if !ok || n < lowest || n > highest {
		a.fail(name)
	}
	return n
}

func (a *ringArgs) ids(name string) []int64 {
	list, ok := a.op.Args[name].([]any)
	if !ok {
		a.fail(name)
	}
	var ids []int64
	for _, v := range list {
		id, ok := ringInteger(v)
		if !ok || id < 0 || id > math.MaxUint32 {
			a.fail(name)
		}
		ids = append(ids, id)
	}
	return ids
}

// integer returns the value of any integer type that operations are made with.
func ringInteger(v any) (int64, bool) {
	switch v := v.(type) {
	case int:
		return int64(v), true
	case int64:
		return v, true
	case uint32:
		return int64(v), true
	case uint64:
		return int64(v), v <= math.MaxInt64
	}
	return 0, false
}
