package mmcache

import (
	"fmt"

	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/serde"
)

// Batch is what goes on the wire for a request.
type Batch struct {
	// Items in the order of the Wants.
	Items []Wire
	// Envelope is for engines that are receivers of package lrusync (mode lru).
	Envelope lrusync.Envelope
}

// Wire is one item as it is sent. It is valid until the request ends.
type Wire struct {
	Key string
	// Handle is that of the item if it lies in shared memory, so that an item with its
	// address is sent; else nil. It must not be written to.
	Handle  *serde.Address
	Updates []byte // prompt updates; they must not be written to

	item     *serde.Item // that is sent itself
	modality string      // of the address item
	request  *Request    // with a Handle
}

// wire returns what is sent for an item, as a request has it.
func (w *wanted) wire(r *Request) Wire {
	e := &w.entry
	out := Wire{Key: e.key, Updates: e.updates, item: e.item}
	if e.where == inSegment {
		out.Handle, out.modality, out.request = &e.handle, w.modality, r
	}
	return out
}

// Item returns what is sent: the item itself or, with a Handle, a new item with the
// address of the real one in shared memory. It is nil if nothing (None) is sent, since the
// engine has the item. It must not be written to.
func (w Wire) Item() *serde.Item {
	if w.Handle != nil {
		return serde.NewAddressItem(*w.Handle, w.modality)
	}
	return w.item
}

// AppendAddress appends the message that the engine gets in the place of the item: its
// address item, encoded by [serde.AppendAddress]. It allocates nothing if dst has
// room for it. It fails with [fs.ErrInvalid] if there is no Handle.
func (w Wire) AppendAddress(dst []byte) ([]byte, error) {
	if w.Handle == nil {
		return dst, fmt.Errorf("%w: item %q is sent without an address", errInvalid, w.Key)
	}
	return serde.AppendAddress(dst, *w.Handle, w.modality, serde.Options{Generation: w.request.c.o.Generation})
}

// Stored returns the item as the engine will have it: the one that is sent, or,
// if that is an address, what a worker will find there, found in the same way
// (see [objstore.Request.Stored], whose errors it has). A worker that can't use an
// address stops its engine, so ask before it is sent. It is nil if no item is sent.
// It is valid until the request ends, and must not be written to.
func (w Wire) Stored() (*serde.Item, error) {
	if w.Handle == nil {
		return w.item, nil
	}
	v, err := w.request.tx.stored.Stored(*w.Handle)
	if err != nil {
		return nil, err
	}
	it, ok := v.(*serde.Item)
	if !ok {
		return nil, fmt.Errorf("%w: under key %q lies a %T, not an item", errInvalid, w.Key, v)
	}
	return it, nil
}
