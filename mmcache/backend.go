package mmcache

import (
	"context"

	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/serde"
)

// backend is what the modes differ in. There is one type for each: uncached,
// processorOnly, [Mirrored] and [Shared]. Any goroutine may call its methods.
type backend interface {
	transactor
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
// finds or makes stays until its end. It is a field of these, so that it takes no
// allocation. The rest is for one mode each.
type transaction struct {
	transactor

	stored objstore.Request // of mode shm
	pinned []*cachedEntry   // of mode processor_only, guarded by its lock
	// Of mode lru, for Commit and Missed, which have turns: how the request was sent the
	// last time, and how often the engine missed items of it.
	ticket lrusync.Envelope
	missed int
}

// transactor does the steps of transactions. Any goroutine may call find and room of one
// that was begun. One at a time calls commit, and end comes last.
type transactor interface {
	// begin starts a transaction. The id is for messages.
	begin(t *transaction, id string) error
	// find returns what is cached under a key.
	find(t *transaction, key string) (entry, bool)
	// room makes room for an item that is being made.
	room(t *transaction, b *Builder, it *serde.Item) (room, error)
	// commit works out what to send for a request, and sends it.
	commit(ctx context.Context, r *Request, send func(Batch) error) error
	// end ends a transaction. It is called once.
	end(t *transaction, how ending)
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
	e := b.entry(onHeap)
	e.refused, e.item = h.refused, h.item
	return e, nil
}

func (*heapRoom) discard() {}
