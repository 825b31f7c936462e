package linear

import (
	"fmt"
	"slices"

	"github.com/anishathalye/porcupine"
)

// CacheCall asks a cache for the item of a key, or makes it forget that (Forget), or everything (Clear).
type CacheCall struct {
	Key           string
	Forget, Clear bool
}

// CacheResult is what a [CacheCall] got.
type CacheResult struct {
	Value uint64 // of the item: not 0, and another one each time that it is made
	// Made reports that the caller had to make the item; of a mirrored cache, that it had to
	// be sent.
	Made bool
	// Uncached reports that the cache could not keep the item. Those who waited for it have it, too.
	Uncached bool
}

// SingleFlight is a cache in which one client makes an item and all others get that one, until it is
// forgotten. Each key is judged by itself. evicts: items may go at any time by themselves.
func SingleFlight(evicts bool) porcupine.Model {
	return porcupine.Model{
		Partition: byKey(func(call any) (string, bool) { return call.(CacheCall).Key, call.(CacheCall).Clear }),
		Init:      func() any { return uint64(0) },
		Step: func(state, input, output any) (bool, any) {
			is, c, r := state.(uint64), input.(CacheCall), output.(CacheResult)
			switch {
			case c.Forget || c.Clear:
				return true, uint64(0)
			case r.Uncached:
				return !r.Made || is == 0 || evicts, is
			case r.Made:
				return is == 0 || evicts, r.Value
			}
			return r.Value == is && is != 0, is
		},
		DescribeOperation: describeCache,
		DescribeState:     func(state any) string { return fmt.Sprint(state) },
	}
}

// place is that of an item in an LRU order. A forgotten one keeps its place, and is made again.
type place struct {
	key       string
	forgotten bool
}

// LRU is a cache of so many items of one size: an item that is not there is made, or sent, and the one that
// was asked for the longest time ago goes. It is what the receiver of a mirrored cache has, and what its
// sender must foresee.
func LRU(items int) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return []place(nil) },
		Step: func(state, input, output any) (bool, any) {
			is, c, r := state.([]place), input.(CacheCall), output.(CacheResult)
			if c.Clear {
				return true, []place(nil)
			}
			i := slices.IndexFunc(is, func(p place) bool { return p.key == c.Key })
			next := slices.Clone(is)
			if c.Forget {
				if i >= 0 {
					next[i].forgotten = true
				}
				return true, next
			}
			if r.Made != (i < 0 || is[i].forgotten) {
				return false, is
			}
			if i >= 0 {
				next = slices.Delete(next, i, i+1)
			}
			next = append(next, place{key: c.Key})
			return true, next[max(len(next)-items, 0):]
		},
		Equal:             func(a, b any) bool { return slices.Equal(a.([]place), b.([]place)) },
		DescribeOperation: describeCache,
		DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
	}
}

func describeCache(input, output any) string {
	c, r := input.(CacheCall), output.(CacheResult)
	switch {
	case c.Clear:
		return "clear"
	case c.Forget:
		return "forget " + c.Key
	case r.Made:
		return fmt.Sprintf("get %s: made %d, uncached %t", c.Key, r.Value, r.Uncached)
	}
	return fmt.Sprintf("get %s: %d", c.Key, r.Value)
}
