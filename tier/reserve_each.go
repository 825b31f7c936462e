package tier

import (
	"errors"
	"fmt"
)

// ReserveEach reserves objects one by one, in their order, with a call each. What has no room refuses what
// descends from it, too, with ErrFull: a level that does not have the parent would make room for the child by
// evicting the end of the chain that both belong to.
func ReserveEach(objects []Object, reserve func(o *Object) Placed) []Placed {
	placed := make([]Placed, len(objects))
	var refused map[Key]bool
	for i := range objects {
		o := &objects[i]
		if parent, ok := o.ParentKey(); ok && refused[parent] {
			placed[i].Err = fmt.Errorf("tier: object %v has a parent without room: %w", o.Key, ErrFull)
		} else {
			placed[i] = reserve(o)
		}
		if errors.Is(placed[i].Err, ErrFull) || errors.Is(placed[i].Err, ErrTooLarge) {
			if refused == nil {
				refused = map[Key]bool{}
			}
			refused[o.Key] = true
		}
	}
	return placed
}
