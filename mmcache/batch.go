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

// Form is what goes on the wire in the place of an item.
type Form uint8

const (
	// FormData: the item itself.
	FormData Form = iota + 1
	// FormAddress: an item with the address of the real one in shared memory.
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
	Item    *serde.Item   // nil if FormOmitted
	Handle  serde.Address // if FormAddress
	Updates []byte

	sharing *sharing // if FormAddress
}

// Stored returns the item as the engine will have it: the one that is sent, or,
// if that is an address, what a worker will find there, found in the same way
// (see [objstore.Request.Stored], whose errors it has). A worker that can't use an
// address stops its engine, so ask before it is sent. It is nil for FormOmitted.
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
	return Wire{Key: d.key, Form: FormData, Item: e.data(), Updates: d.updates}
}
