package mmcache

import (
	"context"
	"errors"
	"fmt"

	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/serde"
)

// backend is what the modes differ in. Its methods may be called by any number
// of goroutines.
type backend interface {
	// find returns what is cached under a key. It stays until it is released.
	find(key string) (*entry, bool)
	// reserve makes room in shared memory; nil and the cause if there is none.
	reserve(b *Builder, it *serde.Item) (*objstore.Reservation, Cause, error)
	// admit takes what a builder has made, and caches it if it can.
	admit(b *Builder) (*entry, error)
	// commit works out what to send for a request and sends it.
	commit(ctx context.Context, r *Request, fresh bool, send func(Batch) error) error
	// invalidate makes a key a miss.
	invalidate(key string) bool
	// clear makes every key a miss. No request or hold is open, but for mode lru.
	clear(ctx context.Context, send func(lrusync.Envelope) error) error
	// contents lists what is cached, and the bytes of all together.
	contents() ([]lrusync.KeySize, int64)
	// check verifies the structure.
	check() error
	close() error
}

// entry is an item as one request, or a hold, has it.
type entry struct {
	key     string
	size    int64 // bytes by vLLM's rules
	updates []byte
	item    *serde.Item     // the data, if it is on the heap
	lease   *objstore.Lease // if it is in shared memory
	cached  bool            // the cache holds it, so it needs no budget
	cause   Cause           // why it is not cached, of one that was made
	free    func()          // ends the protection; nil if there is none
	abort   func()          // ends it when the engine may still read; nil if that makes no difference
}

// release ends the protection.
func (e *entry) release() { e.end(false) }

func (e *entry) end(aborted bool) {
	free := e.free
	if aborted && e.abort != nil {
		free = e.abort
	}
	if free != nil {
		free()
	}
	e.free, e.abort = nil, nil
}

// shared returns what another request may have of an entry whose protection is
// its owner's: the data on the heap, if there is any.
func (e *entry) shared() (*entry, bool) {
	if e.item == nil {
		return nil, false
	}
	return &entry{key: e.key, size: e.size, updates: e.updates, item: e.item, cause: e.cause}, true
}

// Batch is what goes on the wire for a request.
type Batch struct {
	// Items in the order of the Wants.
	Items []Wire
	// Envelope is for engines that are receivers of package lrusync (mode lru).
	Envelope lrusync.Envelope
}

// Form is what goes on the wire in the place of an item.
type Form uint8

const (
	// FormData: the item itself.
	FormData Form = iota + 1
	// FormAddress: an item that says where the real one lies in shared memory.
	FormAddress
	// FormOmitted: nothing (None), since the engine has the item.
	FormOmitted
)

func (f Form) String() string {
	return [...]string{"Form(0)", "data", "address", "omitted"}[min(int(f), 3)]
}

// Wire is one item as it is sent.
type Wire struct {
	Key     string
	Form    Form
	Item    *serde.Item     // nil if FormOmitted
	Handle  objstore.Handle // if FormAddress
	Updates []byte

	lease *objstore.Lease // if FormAddress
}

// Stored returns the item as the engine will have it: the one that is sent, or,
// if that is an address, what a worker will find there, found in the same way
// (see [objstore.Lease.Stored], whose errors it has). A worker that can't use an
// address stops its engine, so ask before it is sent. It is nil for FormOmitted.
// It is valid until the request ends, and must not be written to.
func (w Wire) Stored() (*serde.Item, error) {
	if w.Form != FormAddress {
		return w.Item, nil
	}
	h, ok, err := serde.ParseAddress(w.Item, serde.Options{Generation: w.lease.Generation()})
	if err != nil || !ok {
		return nil, errors.Join(fmt.Errorf("%w: the address item of key %q has no address", ErrInvalid, w.Key), err)
	}
	v, err := w.lease.Stored(h)
	if err != nil {
		return nil, err
	}
	it, ok := v.(*serde.Item)
	if !ok {
		return nil, fmt.Errorf("%w: under key %q lies a %T, not an item", ErrInvalid, w.Key, v)
	}
	return it, nil
}

// inline is the wire of an item on the heap.
func (e *entry) inline() Wire {
	return Wire{Key: e.key, Form: FormData, Item: e.item, Updates: e.updates}
}

// none keeps nothing.
type none struct{}

func (none) find(string) (*entry, bool) { return nil, false }
func (none) reserve(*Builder, *serde.Item) (*objstore.Reservation, Cause, error) {
	return nil, NoCause, nil
}
func (none) admit(b *Builder) (*entry, error) { return b.heapEntry(), nil }
func (none) commit(_ context.Context, r *Request, _ bool, send func(Batch) error) error {
	return send(Batch{Items: r.wires((*entry).inline)})
}
func (none) invalidate(string) bool { return false }
func (none) clear(_ context.Context, send func(lrusync.Envelope) error) error {
	return send(lrusync.Envelope{})
}
func (none) contents() ([]lrusync.KeySize, int64) { return nil, 0 }
func (none) check() error                         { return nil }
func (none) close() error                         { return nil }
