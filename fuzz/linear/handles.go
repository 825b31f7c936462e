package linear

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// HandleCall is a read of the object at a handle, or, with Kept, one while the store has to keep the object.
type HandleCall struct {
	// Handle names the handle, with its id: no two objects of a history have the same.
	Handle string
	Kept   bool
}

// HandleResult is what a [HandleCall] got.
type HandleResult struct {
	Value uint64 // 0: the handle is stale
}

// HandlesOptions are what a store promises of handles.
type HandlesOptions struct {
	// Revives: an object that no request keeps may be stale for a moment, and be there again. So it is in a
	// store that takes the id of an object away, looks whether a reader holds the object, and then puts the
	// id back: objstore.Pool (docs/format.md, Pool).
	Revives bool
}

// Handles is a store that may drop objects, read by handles: a handle leads to one value for ever,
// or is stale; it is not stale while the object is kept; and without Revives it stays stale. Each handle is
// judged by itself.
func Handles(o HandlesOptions) porcupine.Model {
	type state struct {
		value uint64 // 0: not read yet
		stale bool
	}
	return porcupine.Model{
		Partition: byKey(func(call any) (string, bool) { return call.(HandleCall).Handle, false }),
		Init:      func() any { return state{} },
		Step: func(s, input, output any) (bool, any) {
			is, c, r := s.(state), input.(HandleCall), output.(HandleResult)
			if r.Value == 0 {
				return !c.Kept, state{is.value, !o.Revives}
			}
			return !is.stale && (is.value == 0 || is.value == r.Value), state{r.Value, false}
		},
		DescribeOperation: func(input, output any) string {
			if v := output.(HandleResult).Value; v != 0 {
				return fmt.Sprintf("read %s: %d", input.(HandleCall).Handle, v)
			}
			return fmt.Sprintf("read %s: stale", input.(HandleCall).Handle)
		},
		DescribeState: func(s any) string { return fmt.Sprintf("%+v", s) },
	}
}
