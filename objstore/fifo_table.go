package objstore

import (
	"fmt"

	"github.com/ringcache/ringcache/internal/invariants"
)

// fifoTable contains the objects of a FIFO in every state: each is reserved, then committed
// or discarded; a committed one is retired when its key goes.
type fifoTable struct {
	objects map[uint32]*fifoObject   // of the live chunks, by id
	index   map[string]*fifoObject   // the committed ones
	pending map[string]*fifoObject   // the reserved ones
	touched map[*fifoObject]struct{} // of the committed ones
}

func newFIFOTable() fifoTable {
	return fifoTable{map[uint32]*fifoObject{}, map[string]*fifoObject{}, map[string]*fifoObject{},
		map[*fifoObject]struct{}{}}
}

// change enters the next state of an object. Builds that check invariants panic if the
// object has another state than the one before.
func (t *fifoTable) change(o *fifoObject, from, to fifoState) {
	if invariants.Enabled && o.state != from {
		invariants.Must(fmt.Errorf("objstore: object %d of key %q goes from state %d to %d", o.id, o.key, o.state, to))
	}
	o.state = to
}

// reserve enters the object of a chunk that was just allocated.
func (t *fifoTable) reserve(o *fifoObject) {
	if invariants.Enabled && t.objects[o.id] != nil {
		invariants.Must(fmt.Errorf("objstore: id %d is given out, and live", o.id))
	}
	t.objects[o.id] = o
	t.pending[o.key] = o
}

// commit gives a reserved object its key, which no other object has.
func (t *fifoTable) commit(o *fifoObject) {
	t.change(o, fifoReserved, fifoCommitted)
	delete(t.pending, o.key)
	t.index[o.key] = o
}

// discard gives up a reserved object. Its chunk stays until it is the oldest.
func (t *fifoTable) discard(o *fifoObject) {
	t.change(o, fifoReserved, fifoDiscarded)
	delete(t.pending, o.key)
}

// retire takes a committed object's key away.
func (t *fifoTable) retire(o *fifoObject) {
	t.change(o, fifoCommitted, fifoRetired)
	delete(t.index, o.key)
}

// touch protects a committed object.
func (t *fifoTable) touch(o *fifoObject) {
	o.touched = true
	t.touched[o] = struct{}{}
}

// untouch ends the protection, and reports whether there was any.
func (t *fifoTable) untouch(o *fifoObject) bool {
	was := o.touched
	o.touched = false
	delete(t.touched, o)
	return was
}

// forget removes the object of a chunk that was freed, and reports whether it had its key
// until now.
func (t *fifoTable) forget(o *fifoObject) (hadKey bool) {
	delete(t.objects, o.id)
	if o.state != fifoCommitted {
		return false
	}
	delete(t.index, o.key)
	return true
}

// clear removes every object. None is reserved or touched any more.
func (t *fifoTable) clear() {
	clear(t.objects)
	clear(t.index)
	clear(t.touched)
}
