package objstore

import (
	"errors"
	"fmt"

	"github.com/ringcache/ringcache/shmring"
)

// ObjectState is what a writer knows of one object.
type ObjectState struct {
	Key     string
	Address uint64
	ID      uint32
	Bytes   int64 // of the chunk, with its header
	Indexed bool  // Lookup finds it
	Touched bool  // protected until ReleaseTouches
	Leases  int   // open
	Uses    int64 // issued
	Reads   int64 // counted reads; it is free at Uses * Readers
}

// State is a copy of what a writer knows, oldest object first.
type State struct {
	Objects []ObjectState
	Ring    shmring.State
	Used    uint64 // bytes of the ring in use, with padding
}

// State returns a copy of the writer's tables, with the read counts as they
// are in the segment now. Reserved and discarded chunks are left out.
func (w *Writer) State() (State, error) {
	if err := w.lock(); err != nil {
		return State{}, err
	}
	defer w.mu.Unlock()
	s := State{Ring: w.ring.State(), Used: w.ring.Used()}
	for id, address := range w.ring.Live() {
		o := w.objects[id]
		if o.state == reserved || o.state == discarded {
			continue
		}
		_, touched := w.touched[id]
		s.Objects = append(s.Objects, ObjectState{
			Key: o.key, Address: address, ID: id, Bytes: int64(o.size), Indexed: w.index[o.key] == o, Touched: touched,
			Uses: o.uses, Leases: o.leases, Reads: w.reads(address),
		})
	}
	return s, nil
}

// reads is the read count of a chunk as it is now, 0 if it can't be read.
func (w *Writer) reads(address uint64) (n int64) {
	_ = w.sv.guard(Handle{Address: address}, func() error {
		c, err := w.ring.Access(address)
		if err == nil && len(c.Payload) >= countSize {
			n = readCount(c.Payload)
		}
		return err
	})
	return n
}

// CheckStructure verifies everything that must hold between calls and returns
// every violation it finds, joined. A closed writer has none.
func (w *Writer) CheckStructure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	errs := []error{w.sv.guard(Handle{}, w.ring.CheckStructure)}
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("store: "+format, args...)) }

	counts := map[objectState]int{}
	leases := 0
	for id, address := range w.ring.Live() {
		o, ok := w.objects[id]
		if !ok {
			bad("chunk %d has no object", id)
			continue
		}
		counts[o.state]++
		if o.id != id || o.address != address {
			bad("object %d:%d is filed as %d:%d", o.address, o.id, address, id)
		}
		switch {
		case o.state == reserved && w.pending[o.key] != o:
			bad("reserved key %q is not pending", o.key)
		case o.state == committed && w.index[o.key] != o:
			bad("key %q is not indexed", o.key)
		case o.uses < 0 || o.leases < 0:
			bad("key %q has %d uses and %d leases", o.key, o.uses, o.leases)
		}
		leases += o.leases
	}
	if len(w.objects) != w.ring.Len() {
		bad("%d objects for %d chunks", len(w.objects), w.ring.Len())
	}
	if len(w.index) != counts[committed] || len(w.pending) != counts[reserved] {
		bad("%d keys and %d pending for %d committed and %d reserved objects", len(w.index), len(w.pending), counts[committed], counts[reserved])
	}
	for key := range w.pending {
		if o, ok := w.index[key]; ok && w.canIssue(o) {
			bad("key %q is indexed and pending", key)
		}
	}
	for id := range w.touched {
		if o, ok := w.objects[id]; !ok || o.state != committed {
			bad("touched id %d is not committed", id)
		}
	}
	if leases != w.leases {
		bad("%d leases of objects, %d in all", leases, w.leases)
	}
	return errors.Join(errs...)
}
