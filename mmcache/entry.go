package mmcache

import "github.com/ringcache/ringcache/serde"

// entry is an item as a transaction has it. The zero entry is none.
type entry struct {
	where   where
	key     string
	size    int64  // bytes by vLLM's rules
	updates []byte // prompt updates
	refused error  // why it is not cached, of one that was made

	item   *serde.Item   // onHeap and inCache
	handle serde.Address // inSegment
}

// where is where the data of an item is.
type where uint8

const (
	nowhere   where = iota // there is no item
	onHeap                 // for one request; in no cache
	inCache                // on the heap, in the cache of mode processor_only
	inSegment              // in shared memory
	atEngine               // which may drop it
)

func (e *entry) exists() bool { return e.where != nowhere }

// needs returns the bytes of the budget that the entry takes, of which so many were
// announced.
func (e *entry) needs(announced int64) int64 {
	switch e.where {
	case onHeap:
		return e.bytes()
	case atEngine:
		return announced
	}
	return 0
}

// bytes returns the memory of the item and its prompt updates, which upstream does not
// count.
func (e *entry) bytes() int64 { return e.size + int64(len(e.updates)) }

// lasts reports whether the entry stays until its transaction ends.
func (e *entry) lasts() bool { return e.where != atEngine }

// shared returns what another request may have of an entry that somebody else's
// transaction keeps: the data on the heap, if there is any.
func (e entry) shared() (entry, bool) {
	e.where = onHeap
	return e, e.item != nil
}
