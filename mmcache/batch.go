package mmcache

import (
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

// Wire is one item as it is sent.
type Wire struct {
	Key string
	// Item is what is sent: the item itself or, with a Handle, an item with the address
	// of the real one in shared memory. It is nil if nothing (None) is sent, since the
	// engine has the item.
	Item *serde.Item
	// Handle is that of the real item if Item is an address, else nil. It must not be
	// written to.
	Handle  *serde.Address
	Updates []byte

	sharing *sharing // with a Handle
}

// Stored returns the item as the engine will have it: the one that is sent, or,
// if that is an address, what a worker will find there, found in the same way
// (see [objstore.Request.Stored], whose errors it has). A worker that can't use an
// address stops its engine, so ask before it is sent. It is nil if no item is sent.
// It is valid until the request ends, and must not be written to.
func (w Wire) Stored() (*serde.Item, error) {
	if w.sharing != nil {
		return w.sharing.stored(w)
	}
	return w.Item, nil
}

// inline is the wire of an item that is sent itself.
func inline(e entry) Wire {
	d := e.describe()
	return Wire{Key: d.key, Item: e.data(), Updates: d.updates}
}
