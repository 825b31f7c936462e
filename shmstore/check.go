package shmstore

import (
	"errors"
	"fmt"

	"github.com/ringcache/ringcache/internal/line"
	"github.com/ringcache/ringcache/shmring"
)

// report collects what does not hold.
type report func(format string, args ...any)

// CheckStructure verifies everything that must hold between calls and returns
// every violation it finds, joined. A closed store has none.
func (s *Store) CheckStructure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.Closed {
		return nil
	}
	errs := []error{s.guard(s.pool.CheckStructure)}
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("store: "+format, args...)) }
	s.checkObjects(bad)
	s.checkKeys(bad)
	s.checkLeases(bad)
	s.checkSums(bad)
	s.checkQuarantine(bad)
	s.checkFamilies(bad)
	s.checkSidecar(bad)
	s.checkSearch(bad)
	lines := []*line.Line{&s.waiters.Main}
	for _, t := range s.tenants {
		lines = append(lines, &t.line)
	}
	s.waiters.Check(lines, bad)
	return errors.Join(errs...)
}

func (s *Store) checkObjects(bad report) {
	for id, address := range s.pool.Live() {
		o := s.object(id)
		if o == nil {
			bad("chunk %d has no object", id)
			continue
		}
		if o.chunk.ID != id || o.chunk.Address != address {
			bad("object %d:%d is filed as %d:%d", o.chunk.Address, o.chunk.ID, address, id)
		}
		if extent := s.extent(o.chunk.Size - shmring.HeaderSize); extent != o.extent {
			bad("object %d of %d bytes has a chunk of %d", id, o.extent, extent)
		}
		if (o.state == committed) != o.cached.Live() {
			bad("key %q in state %d is known to the eviction policy: %v", o.key, o.state, o.cached.Live())
		}
		if err := s.owner.Check(o); err != nil {
			bad("key %q: %w", o.key, err)
		}
	}
}

func (s *Store) checkKeys(bad report) {
	counts := map[objectState]int{}
	for o := range s.all() {
		counts[o.state]++
		switch {
		case o.state == reserved && s.pending[o.key] != o:
			bad("reserved key %q is not pending", o.key)
		case o.state == committed && s.index[o.key] != o:
			bad("key %q is not indexed", o.key)
		}
		if _, ok := s.pinned[o]; ok != o.pinned || o.pinned && o.state != committed {
			bad("key %q in state %d is pinned: %v, %v", o.key, o.state, o.pinned, ok)
		}
	}
	if len(s.index) != counts[committed] || len(s.pending) != counts[reserved] {
		bad("%d keys and %d pending for %d committed and %d reserved objects", len(s.index), len(s.pending), counts[committed], counts[reserved])
	}
	for key := range s.pending {
		if o, ok := s.index[key]; ok && s.usable(o) {
			bad("key %q is indexed and pending", key)
		}
	}
	for o := range s.pinned {
		if s.object(o.chunk.ID) != o {
			bad("key %q is pinned, and gone", o.key)
		}
	}
}

func (s *Store) checkLeases(bad report) {
	type sum struct{ leases, sent int }
	sums := map[*Object]sum{}
	all, kept := 0, 0
	for id, r := range s.requests {
		if r.id != id || r.state == requestEnded {
			bad("request %q in state %d is filed as %q", r.id, r.state, id)
		}
		for l := range r.leases.all() {
			o := l.o
			n := sums[o]
			n.leases++
			if r.state == requestCommitted {
				n.sent++
			}
			sums[o] = n
			all++
		}
		if r.keeps {
			kept++
		}
	}
	for o := range s.all() {
		if n := sums[o]; n != (sum{int(o.leases), int(o.sent)}) {
			bad("key %q has %d leases, %d sent; requests have %d and %d", o.key, o.leases, o.sent, n.leases, n.sent)
		}
	}
	if all != s.leases || kept > s.kept {
		bad("requests have %d leases and keep the memory %d times; counted were %d and %d", all, kept, s.leases, s.kept)
	}
}

// checkSums counts anew what is kept as things change.
func (s *Store) checkSums(bad report) {
	type sums struct{ used, idleBytes, idle int64 }
	tenants := map[string]sums{}
	var bytes [classes]int64
	texts := 0
	for o := range s.all() {
		texts += o.texts()
		if c := classOf(o); c != o.class {
			bad("key %q is filed as of class %d, want %d", o.key, o.class, c)
		}
		bytes[o.class] += o.extent
		n := tenants[o.tenant()]
		n.used += o.extent
		if o.class.reachable() {
			n.idleBytes += o.extent
		}
		if o.class == classIdle {
			n.idle++
			if !s.idle.has(o) {
				bad("key %q is idle, and not in its place among the others", o.key)
			}
			if t := s.tenants[o.tenant()]; t != nil && !t.idle.has(o) {
				bad("key %q is idle, and not in its place among those of tenant %q", o.key, o.tenant())
			}
		}
		tenants[o.tenant()] = n
	}
	if texts != s.texts {
		bad("texts of objects count for %d objects, counted were %d", texts, s.texts)
	}
	sum := int64(0)
	for _, n := range bytes {
		sum += n
	}
	if used := int64(s.pool.Used()); sum != used {
		bad("objects take %d bytes, the chunks of the pool %d", sum, used)
	}
	idle := int64(0)
	for name, n := range tenants {
		idle += n.idle
		if name == "" {
			continue
		}
		if t := s.tenants[name]; t == nil || n != (sums{t.used, t.idleBytes, int64(len(t.idle.items))}) {
			bad("tenant %q has %+v, counted was %+v", name, n, t)
		}
	}
	for name, t := range s.tenants {
		if tenants[name].used == 0 && t.line.Empty() {
			bad("tenant %q has nothing", name)
		}
	}
	if bytes != s.bytes || idle != int64(len(s.idle.items)) {
		bad("bytes by class are %v and %d objects idle, counted were %v and %d", bytes, idle, s.bytes, len(s.idle.items))
	}
}

// checkFamilies finds the children of each object anew.
func (s *Store) checkFamilies(bad report) {
	children := map[*kin]int32{}
	for o := range s.all() {
		if o.rel != nil && o.rel.under == nil && o.rel.of == nil {
			bad("key %q has no relatives, and room for them", o.key)
		}
		if (o.state == committed || o.state == reserved) && s.opt.Parent != nil {
			parent := s.opt.Parent(o.key, o.Note())
			under := o.rel != nil && o.rel.under != nil
			switch {
			case under && (o.rel.under.key != parent || s.families.kin[parent] != o.rel.under):
				bad("key %q is a child of %q, not of %q", o.key, o.rel.under.key, parent)
			case under == o.loner && parent != "" && parent != o.key:
				bad("key %q is no child of %q", o.key, parent)
			}
		} else if o.rel != nil {
			bad("key %q in state %d has relatives", o.key, o.state)
		}
		steps := 0
		for p := o; p != nil; p = p.parent() {
			if steps++; steps > s.pool.Len() {
				bad("key %q descends from itself", o.key)
				break
			}
		}
	}
	for key, k := range s.families.kin {
		n, busy := int32(0), int32(0)
		var last *Object
		for o := k.first; o != nil && n <= k.n; o = o.rel.next {
			if o.rel == nil || o.rel.under != k || o.rel.prev != last || s.object(o.chunk.ID) != o || o.rel.busy != o.class.busy() {
				bad("key %q is not in its place among the children of %q", o.key, key)
				break
			}
			n++
			if o.rel.busy {
				busy++
			}
			last = o
		}
		children[k] = n
		if n == 0 || n != k.n || busy != k.busy || k.key != key || k.head != s.index[key] || k.head != nil && k.head.rel.of != k {
			bad("key %q has %d children, %d of them busy; counted were %d and %d, of %q", key, n, busy, k.n, k.busy, k.key)
		}
	}
	for o := range s.all() {
		if o.hasChildren() && children[o.rel.of] == 0 {
			bad("key %q has children that are gone", o.key)
		}
	}
}

func (s *Store) checkQuarantine(bad report) {
	n := 0
	for o := range s.all() {
		if o.quarantined != nil {
			n++
		}
	}
	fence, next := uint64(0), s.quarantined.next == nil
	for e := s.quarantined.objects.Front(); e != nil; e = e.Next() {
		q := e.Value.(*quarantined)
		o := q.o
		if o.quarantined != q || q.place != e || q.fence < fence || s.object(o.chunk.ID) != o {
			bad("key %q is in quarantine up to fence %d, behind %d", o.key, q.fence, fence)
		}
		fence = q.fence
		next = next || e == s.quarantined.next
	}
	if n != s.quarantined.objects.Len() || !next {
		bad("%d objects are in quarantine, %d in its list; looking goes on in it: %v", n, s.quarantined.objects.Len(), next)
	}
}

func (s *Store) checkSidecar(bad report) {
	if s.sidecar == nil {
		return
	}
	entries := 0
	for o := range s.all() {
		if o.entry >= 0 {
			entries++
		}
		switch live := o.state == committed || o.state == retired; {
		case !live:
		case o.entry < 0:
			bad("key %q has no entry in the sidecar", o.key)
		default:
			err := s.guard(func() error {
				if u, ok := s.sidecar.Use(int(o.entry)); !ok || u != s.useWord(o) {
					bad("key %q: the sidecar's use is %#x (its check is right: %v), want %#x", o.key, u, ok, s.useWord(o))
				}
				return nil
			})
			if err != nil {
				bad("key %q: %w", o.key, err)
			}
		}
	}
	if s.sidecar.Free()+entries != s.sidecar.Options().Objects {
		bad("%d entries used and %d free of %d", entries, s.sidecar.Free(), s.sidecar.Options().Objects)
	}
}

func (s *Store) checkSearch(bad report) {
	n := s.search.need
	if n == 0 {
		return
	}
	ids, ok := s.pool.Cheapest(nil, int(n)-shmring.HeaderSize, func(id uint32, o any) (float64, bool) {
		return 0, o.(*Object).class.reachable() && !s.search.held.has(id)
	})
	if ok {
		bad("a search found no run of %d bytes, but %d objects make one", n, len(ids))
	}
}
