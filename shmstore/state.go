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
	objects := make([]ObjectState, 0, w.Len()) // memory for them all takes a while
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
	s.Objects = objects
	for id, address := range w.space.Live() {
		o := w.objects[id]
		if o.state == reserved || o.state == discarded {
			continue
		}
		_, touched := w.touched[id]
		s.Objects = append(s.Objects, ObjectState{
			Key: o.key, Address: address, ID: id, Bytes: int64(o.size), Indexed: o.state == committed, Touched: touched,
			Uses: o.uses, Leases: o.leases, Written: o.written, Quarantined: o.quarantined != nil, Tenant: o.tenant,
		})
	}
	// In one guard, since one for each takes longer than all the rest. Where the
	// memory is gone nothing more was read.
	_ = w.sv.guard(Handle{}, func() error {
		for i := range s.Objects {
			o := &s.Objects[i]
			o.Reads = w.readsNow(o.Address)
			o.Quarantined = o.Quarantined && !p.over(w.objects[o.ID])
		}
		return nil
	})
	for i := range s.Objects {
		if s.Objects[i].Quarantined {
			s.Quarantined++
		}
	}
	return s, nil
}

// Stats are sums over the objects of a writer, and counts of those who use it.
// Taking them costs the same for any number of objects.
type Stats struct {
	Objects  int   // that Lookup finds
	Chunks   int   // objects, and reservations that are open or not freed yet
	Used     int64 // bytes in use, with padding
	Leases   int   // open
	Requests int   // that have not ended
	Waiting  int   // callers that wait for room
	// Misused is the number of calls of Finish and Abort on requests that were not
	// committed, which do nothing; a Rollback or a Commit is missing.
	Misused int
	Readers int
	// DeadReaders is the number of readers of this library that were found dead.
	DeadReaders int

	// Of the policy Pool: the bytes in use by what keeps them, and the number of
	// objects in quarantine. Those whose counts became complete are found after a
	// while, see [Writer.State] for the truth.
	Reserved, Leased, Quarantined, Evictable int64
	QuarantinedObjects                       int
}

// Stats returns sums, without looking at every object as [Writer.State] does.
func (w *Writer) Stats() (Stats, error) {
	if err := w.lock(); err != nil {
		return Stats{}, err
	}
	defer w.mu.Unlock()
	s := Stats{
		Objects: len(w.index), Chunks: w.space.Len(), Leases: w.leases, Requests: len(w.requests),
		Waiting: len(w.waiters), Misused: w.misused, Readers: w.readers,
	}
	if p, ok := w.life.(*pool); ok {
		_ = w.sv.guard(Handle{}, func() error {
			for looks := min(maxLooks, p.quarantined.Len()); p.look(&looks); {
			}
			return nil
		})
		s.DeadReaders, s.QuarantinedObjects = p.dead, p.quarantined.Len()
		s.Reserved, s.Leased, s.Quarantined, s.Evictable = p.bytes[classReserved], p.bytes[classLeased], p.bytes[classQuarantined], p.bytes[classIdle]
	}
	s.Used = int64(w.space.Used()) // after look, which may have freed what was retired
	s.Chunks = w.space.Len()
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
	w.checkWaiters(bad)
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

// checkWaiters verifies that everyone who waits is in one line.
func (w *Writer) checkWaiters(bad func(format string, args ...any)) {
	lines := []*line{&w.line}
	if p, ok := w.life.(*pool); ok {
		for _, t := range p.tenants {
			lines = append(lines, &t.line)
		}
	}
	n := 0
	for _, l := range lines {
		for e := l.waiting.Front(); e != nil; e = e.Next() {
			n++
			wt := e.Value.(*waiter)
			if _, ok := w.waiters[wt]; !ok || wt.line != l || wt.place != e {
				bad("who waits for %d bytes for key %q is not where it thinks", wt.need, wt.key)
			}
		}
		if l.waiting.Len() == 0 && (l.passed != 0 || l.refused != 0) {
			bad("%d bytes have passed nobody, %d were refused", l.passed, l.refused)
		}
	}
	ofKeys := 0
	for _, of := range w.waitersOf {
		ofKeys += len(of)
	}
	if n != len(w.waiters) || n != ofKeys {
		bad("%d callers wait in lines, %d in all, %d for keys", n, len(w.waiters), ofKeys)
	}
}

// check verifies what holds of a pool besides what holds of every writer, and
// counts anew what is kept as things change.
func (p *pool) check(bad func(format string, args ...any)) {
	type sums struct{ used, idleBytes, idle int64 }
	tenants := map[string]sums{}
	var bytes [classes]int64
	entries, inQuarantine := 0, 0
	for id, o := range p.w.objects {
		if extent := int64(p.mem.Extent(id)); extent == 0 || extent != o.extent {
			bad("object %d of %d bytes has a chunk of %d", id, o.extent, extent)
		}
		if c := p.classOf(o); c != o.class {
			bad("key %q is filed as of class %d, want %d", o.key, o.class, c)
		}
		bytes[o.class] += o.extent
		s := tenants[o.tenant]
		s.used += o.extent
		if o.class == classIdle {
			s.idleBytes += o.extent
			s.idle++
			if i := o.places[bagOfPool]; i >= len(p.idle.items) || p.idle.items[i] != o {
				bad("key %q is idle, and not in its place among the others", o.key)
			}
			if t := p.tenants[o.tenant]; t != nil && (o.places[bagOfTenant] >= len(t.idle.items) || t.idle.items[o.places[bagOfTenant]] != o) {
				bad("key %q is idle, and not in its place among those of tenant %q", o.key, o.tenant)
			}
		}
		tenants[o.tenant] = s
		if o.quarantined != nil {
			inQuarantine++
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
	idle := int64(0)
	for name, s := range tenants {
		idle += s.idle
		if name == "" {
			continue
		}
		if t := p.tenants[name]; t == nil || s != (sums{t.used, t.idleBytes, int64(len(t.idle.items))}) {
			bad("tenant %q has %+v, is charged %+v", name, s, t)
		}
	}
	for name, t := range p.tenants {
		if tenants[name].used == 0 && t.line.waiting.Len() == 0 {
			bad("tenant %q has nothing", name)
		}
	}
	if bytes != p.bytes || idle != int64(len(p.idle.items)) {
		bad("bytes by class are %v and %d objects idle, counted were %v and %d", bytes, idle, p.bytes, len(p.idle.items))
	}
	p.checkQuarantine(inQuarantine, bad)
	if p.ctl != nil && p.ctl.Free()+entries != p.ctl.Options().Objects {
		bad("%d entries used and %d free of %d", entries, p.ctl.Free(), p.ctl.Options().Objects)
	}
	if n := p.search.need; n > 0 {
		ids, ok := p.mem.Cheapest(int(n)-shmring.HeaderSize, func(id uint32) (float64, bool) {
			return 0, p.w.objects[id].class == classIdle && !p.search.held.has(id)
		})
		if ok {
			bad("there is said to be no run of %d bytes, but %d objects make one", n, len(ids))
		}
	}
}

func (p *pool) checkQuarantine(n int, bad func(format string, args ...any)) {
	fence, next := uint64(0), p.next == nil
	for e := p.quarantined.Front(); e != nil; e = e.Next() {
		o := e.Value.(*object)
		if o.quarantined != e || o.fence < fence || p.w.objects[o.id] != o {
			bad("key %q is in quarantine up to fence %d, behind %d", o.key, o.fence, fence)
		}
		fence = o.fence
		next = next || e == p.next
	}
	if n != p.quarantined.Len() || !next {
		bad("%d objects are in quarantine, %d in its list; looking goes on in it: %v", n, p.quarantined.Len(), next)
	}
}
