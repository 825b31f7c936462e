package objstore

import (
	"errors"
	"fmt"
	"maps"

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
	Reads   int64 // counted reads; with FIFO it is free at Uses * Readers

	// Of the policy Pool.
	Written     int64 // reads that are missing and were written off; negative if there were too many
	Quarantined bool
	Tenant      string
}

// State is a copy of what a writer knows, oldest object first.
type State struct {
	Objects []ObjectState
	Ring    shmring.State // FIFO
	Used    uint64        // bytes of the ring in use, with padding
	Leases  int           // open
	Readers int
	// Quarantined is the number of objects that wait for a fence or the counts of
	// an aborted request.
	Quarantined int
	// DeadReaders is the number of readers of this library that were found dead.
	DeadReaders int
}

// State returns a copy of the writer's tables, with the read counts as they
// are in the segment now. Reserved and discarded chunks are left out.
func (w *Writer) State() (State, error) {
	if err := w.lock(); err != nil {
		return State{}, err
	}
	defer w.mu.Unlock()
	s := State{Used: w.space.Used(), Leases: w.leases, Readers: w.readers}
	p, _ := w.life.(*pool)
	if p != nil {
		s.DeadReaders = p.dead
	} else if r, ok := w.space.(*shmring.Ring); ok {
		s.Ring = r.State()
	}
	for id, address := range w.space.Live() {
		o := w.objects[id]
		if o.state == reserved || o.state == discarded {
			continue
		}
		_, touched := w.touched[id]
		quarantined := p != nil && !p.over(o)
		if quarantined {
			s.Quarantined++
		}
		s.Objects = append(s.Objects, ObjectState{
			Key: o.key, Address: address, ID: id, Bytes: int64(o.size), Indexed: w.index[o.key] == o, Touched: touched,
			Uses: o.uses, Leases: o.leases, Reads: w.reads(address),
			Written: o.written, Quarantined: quarantined, Tenant: o.tenant,
		})
	}
	return s, nil
}

// CheckStructure verifies everything that must hold between calls and returns
// every violation it finds, joined. A closed writer has none.
func (w *Writer) CheckStructure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	errs := []error{w.sv.guard(Handle{}, w.space.CheckStructure)}
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("store: "+format, args...)) }

	counts := map[objectState]int{}
	leases := 0
	for id, address := range w.space.Live() {
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
		case o.uses < 0 || o.leases < 0 || o.sent < 0 || o.sent > o.leases || o.unsent < 0:
			bad("key %q has %d uses (%d not sent) and %d leases (%d sent)", o.key, o.uses, o.unsent, o.leases, o.sent)
		}
		leases += o.leases
	}
	if len(w.objects) != w.space.Len() {
		bad("%d objects for %d chunks", len(w.objects), w.space.Len())
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
	if p, ok := w.life.(*pool); ok {
		p.check(bad)
	}
	return errors.Join(errs...)
}

func (p *pool) checkUse(o *object, bad func(format string, args ...any)) {
	if u, ok := p.ctl.Use(o.entry); !ok || u != p.useWord(o) {
		bad("key %q: the sidecar's use is %#x (its check is right: %v), want %#x", o.key, u, ok, p.useWord(o))
	}
}

// check verifies what holds of a pool besides what holds of every writer.
func (p *pool) check(bad func(format string, args ...any)) {
	tenants := map[string]int64{}
	entries := 0
	for id, o := range p.w.objects {
		extent := p.mem.Extent(id)
		if extent == 0 {
			bad("object %d has no chunk", id)
		}
		if o.tenant != "" {
			tenants[o.tenant] += int64(extent)
		}
		if _, ok := p.quarantined[o]; ok != (len(o.aborted) > 0) {
			bad("key %q: in quarantine %v, with %d abortions", o.key, ok, len(o.aborted))
		}
		live := o.state == committed || o.state == retired
		if (o.state == committed) != (o.cached != nil) {
			bad("key %q in state %d is known to the eviction policy: %v", o.key, o.state, o.cached != nil)
		}
		if o.entry >= 0 {
			entries++
		}
		switch {
		case p.ctl == nil || !live:
		case o.entry < 0:
			bad("key %q has no entry in the sidecar", o.key)
		default:
			if err := p.w.sv.guard(Handle{}, func() error { p.checkUse(o, bad); return nil }); err != nil {
				bad("key %q: %w", o.key, err)
			}
		}
	}
	if !maps.Equal(tenants, p.tenants) {
		bad("tenants are charged %v, have %v", p.tenants, tenants)
	}
	if p.ctl != nil && p.ctl.Free()+entries != p.ctl.Options().Objects {
		bad("%d entries used and %d free of %d", entries, p.ctl.Free(), p.ctl.Options().Objects)
	}
}
