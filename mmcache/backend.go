package mmcache

import (
	"context"

	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/serde"
)

// backend is what the modes differ in. There is one type for each: uncached,
// processorOnly, [Mirrored] and [Shared]. Any goroutine may call its methods.
type backend interface {
	// begin starts the transaction of a request or a hold. The id is for messages.
	begin(id string) (transaction, error)
	// invalidate makes a key a miss, and reports whether it was cached.
	invalidate(key string) bool
	// clear has send clear the engine, and makes every key a miss; then it calls
	// cache.cleared.
	clear(ctx context.Context, send func(lrusync.Envelope) error) error
	// contents lists what is cached.
	contents() []lrusync.KeySize
	// measure returns the items that are cached, their bytes, and the items in
	// quarantine.
	measure() (items, bytes, quarantined int64)
	// check verifies the structure.
	check() error
	// close frees what is cached. Nothing is open.
	close() error
	// shutdown is close that may wait until ctx ends.
	shutdown(ctx context.Context) error
	// abandon is close by force.
	abandon() error
}

// transaction is the part of a cache that one request, or one hold, uses: what it
// finds or makes stays until its end. Any goroutine may call find and room. One at a
// time calls commit, and end comes last.
type transaction interface {
	// find returns what is cached under a key.
	find(key string) (entry, bool)
	// room makes room for an item that is being made.
	room(b *Builder, it *serde.Item) (room, error)
	// commit works out what to send for the request of the transaction, and sends it.
	commit(ctx context.Context, r *Request, send func(Batch) error) error
	// end ends the transaction. It is called once.
	end(how ending)
}

// room is the memory of an item that is being made. Either done is called once all
// of it is filled, or discard.
type room interface {
	// tensor returns the bytes of an elem that is one tensor; nil if there is none.
	tensor(key string) []byte
	// done makes the item an entry of the transaction, and caches it if it can.
	done(b *Builder) (entry, error)
	discard()
}

// entry is an item as a transaction has it:
//
//	*heapEntry      on the heap, for one request; in no cache
//	*cachedEntry    on the heap, in the cache of mode processor_only
//	*sharedEntry    in shared memory
//	*mirroredEntry  at the engine, which may drop it
type entry interface {
	describe() *description
	// needs returns the bytes of the budget that the entry takes, of which so many
	// were announced.
	needs(announced int64) int64
	// data returns the item if it is on the heap, else nil.
	data() *serde.Item
	// lasts reports whether the entry stays until its transaction ends.
	lasts() bool
}

// description is what every entry has.
type description struct {
	key     string
	size    int64  // bytes by vLLM's rules
	updates []byte // prompt updates
	refused error  // why it is not cached, of one that was made
}

func (d *description) describe() *description { return d }

// heapEntry is an item that one request has for itself.
type heapEntry struct {
	description
	item *serde.Item
}

func (e *heapEntry) needs(int64) int64 { return e.size + int64(len(e.updates)) }
func (e *heapEntry) data() *serde.Item { return e.item }
func (*heapEntry) lasts() bool         { return true }

// shared returns what another request may have of an entry that somebody else's
// transaction keeps: the data on the heap, if there is any.
func shared(e entry) (*heapEntry, bool) {
	if e.data() == nil {
		return nil, false
	}
	return &heapEntry{*e.describe(), e.data()}, true
}

// heapRoom is memory for one request.
type heapRoom struct {
	item    *serde.Item
	refused error // why it is not in shared memory
}

// newHeapRoom allocates the tensors that have no data.
func newHeapRoom(it *serde.Item, refused error) (*heapRoom, error) {
	it, err := allocated(it)
	if err != nil {
		return nil, err
	}
	return &heapRoom{it, refused}, nil
}

func (h *heapRoom) tensor(key string) []byte {
	if e, ok := h.item.Lookup(key); ok {
		if t, ok := e.Data.(*serde.Tensor); ok {
			return t.Data
		}
	}
	return nil
}

func (h *heapRoom) done(b *Builder) (entry, error) {
	d := b.describe()
	d.refused = h.refused
	return &heapEntry{d, h.item}, nil
}

func (*heapRoom) discard() {}
