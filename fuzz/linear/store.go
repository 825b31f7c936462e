package linear

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// The operations of [StoreCall].
const (
	Put    = "put"    // of an absent key
	Get    = "get"    // the value of a key
	Remove = "remove" // of a key
	Clear  = "clear"  // of all keys
)

// StoreCall is a call of a store of objects by key.
type StoreCall struct {
	Op    string
	Key   string
	Value uint64 // of a Put: not 0, and no other Put's
}

// StoreResult is what a [StoreCall] got.
type StoreResult struct {
	Value uint64 // of a Get; 0 is absent
	Done  bool   // the Put has put, the Remove has removed
	// Busy reports that a Put found another that was going on, or a Clear a request: it did nothing, and saw
	// nothing.
	Busy bool
}

// StoreOptions are those of [Store].
type StoreOptions struct {
	// Evicts: objects may go at any time by themselves.
	Evicts bool
}

// Store is a store in which a Put of an absent key, a Get, a Remove and a Clear take effect at one
// moment. Each key is judged by itself.
func Store(o StoreOptions) porcupine.Model {
	return porcupine.Model{
		Partition: byKey(func(call any) (string, bool) { return call.(StoreCall).Key, call.(StoreCall).Op == Clear }),
		Init:      func() any { return uint64(0) },
		Step: func(state, input, output any) (bool, any) {
			is, c, r := state.(uint64), input.(StoreCall), output.(StoreResult)
			switch c.Op {
			case Get:
				return r.Value == is || o.Evicts && r.Value == 0, r.Value
			case Remove:
				return r.Done == (is != 0) || o.Evicts && !r.Done, uint64(0)
			case Clear:
				if r.Busy {
					return true, is
				}
				return r.Done, uint64(0)
			case Put:
				if r.Busy {
					return true, is
				}
				if r.Done {
					return is == 0 || o.Evicts, c.Value
				}
				return is != 0, is
			}
			return false, is
		},
		DescribeOperation: func(input, output any) string {
			c, r := input.(StoreCall), output.(StoreResult)
			switch {
			case c.Op == Clear:
				return fmt.Sprintf("clear: %t", r.Done)
			case c.Op == Get && r.Value == 0:
				return fmt.Sprintf("get %s: absent", c.Key)
			case c.Op == Get:
				return fmt.Sprintf("get %s: %d", c.Key, r.Value)
			case c.Op == Remove:
				return fmt.Sprintf("remove %s: %t", c.Key, r.Done)
			case r.Busy:
				return fmt.Sprintf("put %s = %d: another puts it", c.Key, c.Value)
			}
			return fmt.Sprintf("put %s = %d: %t", c.Key, c.Value, r.Done)
		},
		DescribeState: func(state any) string { return fmt.Sprint(state) },
	}
}

// byKey judges keys one by one. A call for which all is true belongs to every key.
func byKey(key func(call any) (name string, all bool)) func([]porcupine.Operation) [][]porcupine.Operation {
	return func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
		place := map[string]int{}
		var every []porcupine.Operation
		for _, o := range history {
			name, all := key(o.Input)
			if all {
				every = append(every, o)
				continue
			}
			i, ok := place[name]
			if !ok {
				i = len(parts)
				place[name] = i
				parts = append(parts, nil)
			}
			parts[i] = append(parts[i], o)
		}
		for i := range parts {
			parts[i] = append(parts[i], every...)
		}
		return parts
	}
}
