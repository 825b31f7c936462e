// Package policy simulates caches without bytes: the items of a trace, a cache that gives up what a rule
// values least, and rules.
package policy

// Item is something that can be cached. A trace has one Item for each key.
type Item struct {
	ID   int32 // breaks ties
	Key  string
	Size int64   // bytes
	Cost float64 // of making it, in any unit
	// Parent is the item without which this one is worthless, or nil. A cache gives up children before their
	// parent.
	Parent *Item
}
