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
		if o.chunk.ID != id || o.chunk.Address != address {
			bad("object %d:%d has its chunk at %d:%d", o.chunk.Address, o.chunk.ID, address, id)
		}
		if extent := s.extent(o.chunk.Size - shmring.HeaderSize); extent != o.extent {
			bad("object %d of %d bytes has a chunk of %d", id, o.extent, extent)
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
			bad("key %q is counted as of class %d, want %d", o.key, o.class, c)
		}
		bytes[o.class] += o.extent
		n := tenants[o.tenant()]
		n.used += o.extent
		if o.class.reachable() {
			n.idleBytes += o.extent
		}
		if o.class == classIdle {
			n.idle++
			if !s.idle.Has(o) {
				bad("key %q is idle, and not in its place among the others", o.key)
			}
			if t := s.tenants[o.tenant()]; t != nil && !t.idle.Has(o) {
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
	sizes := map[*children]int32{}
	for o := range s.all() {
		if o.links != nil && o.links.among == nil && o.links.children == nil {
			bad("key %q has no family, and links for one", o.key)
		}
		if (o.state == committed || o.state == reserved) && s.families.parentOf != nil {
			parent := s.families.parentOf(o.key, o.Note())
			child := o.links != nil && o.links.among != nil
			switch {
			case child && (o.links.among.key != parent || s.families.children[parent] != o.links.among):
				bad("key %q is a child of %q, not of %q", o.key, o.links.among.key, parent)
			case child == o.noParent && parent != "" && parent != o.key:
				bad("key %q is no child of %q", o.key, parent)
			}
		} else if o.links != nil {
			bad("key %q in state %d is in a family", o.key, o.state)
		}
		steps := 0
		for p := o; p != nil; p = p.parent() {
			if steps++; steps > s.pool.Len() {
				bad("key %q descends from itself", o.key)
				break
			}
		}
	}
	for key, c := range s.families.children {
		n, busy := int32(0), int32(0)
		var last *Object
		for o := c.first; o != nil && n <= c.n; o = o.links.next {
			if l := o.links; l == nil || l.among != c || l.prev != last || l.busy != o.class.busy() ||
				s.object(o.chunk.ID) != o {
				bad("key %q is not in its place among the children of %q", o.key, key)
				break
			}
			n++
			if o.links.busy {
				busy++
			}
			last = o
		}
		sizes[c] = n
		if n == 0 || n != c.n || busy != c.busy || c.key != key ||
			c.parent != s.families.index[key] || c.parent != nil && c.parent.links.children != c {
			bad("key %q has %d children, %d of them busy; counted were %d and %d, of %q", key, n, busy, c.n, c.busy, c.key)
		}
	}
	for o := range s.all() {
		if o.hasChildren() && sizes[o.links.children] == 0 {
			bad("key %q has children that are gone", o.key)
		}
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
			return fmt.Errorf("shmstore: %d bytes in class %d after key %q moved to %d", n, c, o.key, o.class)
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
	if o.leases != 0 || o.pinned || o.quarantined != nil || o.cached.Live() || o.entry >= 0 || o.class != classNone {
		return fmt.Errorf("shmstore: the chunk of key %q was freed, which has %d leases (pinned: %v, in quarantine: %v, class %d, entry %d)",
			o.key, o.leases, o.pinned, o.quarantined != nil, o.class, o.entry)
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
		return fmt.Errorf("shmstore: objects take %d bytes and chunks %d, after a change of key %q", sum, used, o.key)
	}
	return nil
}
