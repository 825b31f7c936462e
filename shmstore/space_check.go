package shmstore

import (
	"fmt"

	"github.com/ringcache/ringcache/internal/line"
	"github.com/ringcache/ringcache/shmring"
)

// check verifies the allocator, the sums, families and lines.
//
//   - every chunk of the pool has an object as its owner;
//   - the class of an object is what lifetime's counts and its children make it;
//   - bytes, idle, texts and tenants are what counting all objects anew would give;
//   - families has every object that is committed or reserved and has a parent, and no ring;
//   - no run of holes and idle objects is as long as a search that failed wanted, see search;
//   - waiters has everyone who is in a line.
func (s *space) check(bad report) {
	if err := s.durability.guard(s.pool.CheckStructure); err != nil {
		bad("%w", err)
	}
	s.checkObjects(bad)
	s.checkSums(bad)
	s.checkFamilies(bad)
	s.checkSearch(bad)
	lines := []*line.Line{&s.waiters.Main}
	for _, t := range s.tenants {
		lines = append(lines, &t.line)
	}
	s.waiters.Check(lines, bad)
}

func (s *space) checkObjects(bad report) {
	for id, address := range s.pool.Live() {
		o := s.object(id)
		if o == nil {
			bad("chunk %d has no object", id)
			continue
		}
		if o.chunk.id != id || o.chunk.address != address {
			bad("object %d:%d has its chunk at %d:%d", o.chunk.address, o.chunk.id, address, id)
		}
		if extent := s.extent(int(o.chunk.size) - shmring.HeaderSize); extent != o.extent() {
			bad("object %d of %d bytes has a chunk of %d", id, o.extent(), extent)
		}
	}
}

// checkSums counts anew what is kept as things change.
func (s *space) checkSums(bad report) {
	type sums struct{ used, idleBytes, idle int64 }
	tenants := map[string]sums{}
	var bytes [classes]int64
	texts := 0
	for o := range s.all() {
		texts += o.texts()
		if c := classOf(o); c != o.class {
			bad("key %q is counted as of class %d, want %d", o.Key(), o.class, c)
		}
		bytes[o.class] += o.extent()
		n := tenants[o.tenant()]
		n.used += o.extent()
		if o.class.reachable() {
			n.idleBytes += o.extent()
		}
		if o.class == classIdle {
			n.idle++
			if !s.idle.Has(o) {
				bad("key %q is idle, and not in its place among the others", o.Key())
			}
			if t := s.tenants[o.tenant()]; t != nil && !t.idle.Has(o) {
				bad("key %q is idle, and not in its place among those of tenant %q", o.Key(), o.tenant())
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
		if t := s.tenants[name]; t == nil || n != (sums{t.used, t.idleBytes, int64(t.idle.Len())}) {
			bad("tenant %q has %+v, counted was %+v", name, n, t)
		}
	}
	for name, t := range s.tenants {
		if tenants[name].used == 0 && t.line.Empty() {
			bad("tenant %q has nothing", name)
		}
	}
	if bytes != s.bytes || idle != int64(s.idle.Len()) {
		bad("bytes by class are %v and %d objects idle, counted were %v and %d", bytes, idle, s.bytes, s.idle.Len())
	}
}

// checkFamilies finds the children of each object anew.
func (s *space) checkFamilies(bad report) {
	f := &s.families
	lists := map[*children]string{} // with the keys of the parents
	for key, c := range f.orphans {
		if lists[c] = key; c.parent != nil || f.index.find(key) != nil {
			bad("the children of %q are orphans, and it is there", key)
		}
	}
	n := 0
	for o := range s.all() {
		if o.hasParent() {
			n++
		}
		if o.hasChildren() {
			if lists[o.links().children] = o.Key(); o.links().children.parent != o || f.index.find(o.Key()) != o {
				bad("key %q has the children of another object", o.Key())
			}
		}
		steps := 0
		for p := o; p != nil; p = p.parent() {
			if steps++; steps > s.pool.Len() {
				bad("key %q descends from itself", o.Key())
				break
			}
		}
	}
	for c, key := range lists {
		s.checkChildren(c, key, bad)
	}
	for o := range s.all() {
		parent := ""
		if o.state == committed || o.state == reserved {
			parent = f.parentKey(o, o.Key())
		}
		if o.hasParent() != (parent != "") || o.hasParent() && lists[o.links().among] != parent {
			bad("key %q in state %d is not among the children of %q", o.Key(), o.state, parent)
		}
	}
	if n != f.n {
		bad("%d objects are children, counted were %d", n, f.n)
	}
}

// checkChildren counts the children of a key anew.
func (s *space) checkChildren(c *children, key string, bad report) {
	n, busy := 0, int32(0)
	var last *Object
	for o := c.first; o != nil; o = o.links().next {
		if o.links().among != c || o.links().prev != last || o.busy != o.class.busy() || s.object(o.chunk.id) != o || n > s.pool.Len() {
			bad("key %q is not in its place among the children of %q", o.Key(), key)
			return
		}
		n++
		if o.busy {
			busy++
		}
		last = o
	}
	if n == 0 || busy != c.busy {
		bad("key %q has %d children, %d of them busy; counted were %d", key, n, busy, c.busy)
	}
}

func (s *space) checkSearch(bad report) {
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

// checkClass verifies the sums of a store and a tenant, of which an object has moved to another
// class.
func (s *space) checkClass(o *Object) error {
	for c, n := range s.bytes {
		if n < 0 {
			return fmt.Errorf("shmstore: %d bytes in class %d after key %q moved to %d", n, c, o.Key(), o.class)
		}
	}
	if t := s.tenants[o.tenant()]; t != nil && (t.idleBytes < 0 || t.used < t.idleBytes) {
		return fmt.Errorf("shmstore: tenant %q has %d bytes, %d of them idle", o.tenant(), t.used, t.idleBytes)
	}
	return nil
}

// checkFreed verifies that nobody has an object whose chunk was freed, and that no bytes were
// lost.
func (s *space) checkFreed(o *Object) error {
	if o.leases != 0 || o.pinned || o.quarantined || o.cached.Live() || o.entry >= 0 || o.class != classNone {
		return fmt.Errorf("shmstore: the chunk of key %q was freed, which has %d leases (pinned: %v, in quarantine: %v, class %d, entry %d)",
			o.Key(), o.leases, o.pinned, o.quarantined, o.class, o.entry)
	}
	return s.checkBytes(o)
}

// checkBytes verifies that objects take as many bytes as chunks, after a chunk came or went.
func (s *space) checkBytes(o *Object) error {
	sum := int64(0)
	for _, n := range s.bytes {
		sum += n
	}
	if used := int64(s.pool.Used()); sum != used {
		return fmt.Errorf("shmstore: objects take %d bytes and chunks %d, after a change of key %q", sum, used, o.Key())
	}
	return nil
}
