package disk

import (
	"io/fs"
	"math/rand/v2"
	"time"

	"github.com/ringcache/ringcache/internal/evict"
	"github.com/ringcache/ringcache/tier"
)

type state uint8

const (
	writing state = iota + 1 // by a Put; nothing has its name yet
	present                  // complete, under its name
	leaving                  // somebody is about to take the file away
)

// entry is what the index has of one file.
type entry struct {
	object   tier.Object
	path     string
	parent   string // path of the parent; empty if there is none
	bytes    int64  // on the medium, rounded up to blocks
	size     int64  // of the file
	modified int64  // its time, in nanoseconds since 1970, when object was read from it or written to it
	seen     int64  // its newest time that anybody saw: if that is not modified, object may describe another file
	looked   int64  // when somebody asked for it last
	pass     uint64 // the search that saw it last
	value    evict.Entry
	leaf     int // place in index.leaves, or -1
	state    state
	done     chan struct{} // closed when it is not writing or leaving any more
}

// index is what a root has. Its methods are called under the lock of the root.
//
// Invariants, which check verifies: used is the sum of bytes of what is present or leaving,
// reserved of what is being written, gone of what is leaving; children counts for each path what is
// present and has it as its parent; leaves are those that are present and have no children.
type index struct {
	entries  map[string]*entry
	leaves   []*entry
	children map[string]int
	tenants  map[string]int64
	policy   *evict.Policy
	objects  int64 // present
	used     int64
	reserved int64
	going    int64
	// holds counts the objects being stored whose parent has a path.
	holds map[string]int
	// promises are when those of a path end, in nanoseconds since 1970.
	promises map[string]int64
	// removed has the tick at which a file was taken away, so that nobody who opened it before
	// puts it back into the index. It is needed while files are found by searching.
	removed, removedBefore map[string]uint64
	tick                   uint64
	// changed is closed, and replaced, when room may have become free.
	changed chan struct{}
}

func newIndex() *index {
	return &index{
		entries: map[string]*entry{}, children: map[string]int{}, tenants: map[string]int64{}, policy: evict.New(),
		holds: map[string]int{}, promises: map[string]int64{}, removed: map[string]uint64{}, changed: make(chan struct{}),
	}
}

// costOf is the cost of an object, or an estimate: 3 ms, and 8 ms for each MiB, as in shmstore.
func costOf(o tier.Object) float64 {
	if o.Cost > 0 {
		return float64(o.Cost)
	}
	return 3e6 + 8e6*float64(o.Size)/(1<<20)
}

// begin notes that an object is being written. Its room is not reserved.
func (x *index) begin(e *entry) {
	e.state, e.leaf, e.done = writing, -1, make(chan struct{})
	x.entries[e.path] = e
}

// reserve and unreserve take room for what is being written.
func (x *index) reserve(e *entry)   { x.reserved += e.bytes }
func (x *index) unreserve(e *entry) { x.reserved -= e.bytes; x.wake() }

// cancel forgets what was being written.
func (x *index) cancel(e *entry) {
	delete(x.entries, e.path)
	x.end(e)
}

// publish makes what was being written present.
func (x *index) publish(e *entry) {
	x.reserved -= e.bytes
	delete(x.removed, e.path)
	x.end(e)
	x.add(e)
}

// add makes e present.
func (x *index) add(e *entry) {
	e.state = present
	x.entries[e.path] = e
	x.used += e.bytes
	if e.object.Tenant != "" {
		x.tenants[e.object.Tenant] += e.bytes
	}
	x.policy.Add(&e.value, e.path, costOf(e.object))
	x.link(e)
	x.wake()
}

// link enters e, which is present, into its family.
func (x *index) link(e *entry) {
	x.objects++
	e.leaf = -1
	if x.children[e.path] == 0 {
		x.addLeaf(e)
	}
	if e.parent != "" {
		x.children[e.parent]++
		if p := x.entries[e.parent]; p != nil && p.leaf >= 0 {
			x.removeLeaf(p)
		}
	}
}

func (x *index) unlink(e *entry) {
	x.objects--
	if e.leaf >= 0 {
		x.removeLeaf(e)
	}
	if e.parent == "" {
		return
	}
	if x.children[e.parent]--; x.children[e.parent] > 0 {
		return
	}
	delete(x.children, e.parent)
	if p := x.entries[e.parent]; p != nil && p.state == present {
		x.addLeaf(p)
	}
}

func (x *index) addLeaf(e *entry) {
	e.leaf = len(x.leaves)
	x.leaves = append(x.leaves, e)
}

func (x *index) removeLeaf(e *entry) {
	last := x.leaves[len(x.leaves)-1]
	x.leaves[e.leaf], last.leaf = last, e.leaf
	x.leaves[len(x.leaves)-1] = nil
	x.leaves = x.leaves[:len(x.leaves)-1]
	e.leaf = -1
}

// claim takes e, which is present, out of everybody's sight: its file is about to go.
func (x *index) claim(e *entry) {
	x.unlink(e)
	e.state, e.done = leaving, make(chan struct{})
	x.going += e.bytes
}

// hide keeps others from a path that is not in the index, while its file is about to go.
func (x *index) hide(path string) *entry {
	e := &entry{path: path, leaf: -1, state: leaving, done: make(chan struct{})}
	x.entries[path] = e
	return e
}

// is reports whether a file is the one that e describes, as far as size and time tell.
func (e *entry) is(info fs.FileInfo) bool {
	return info.Mode().IsRegular() && info.Size() == e.size && info.ModTime().UnixNano() == e.modified
}

// wrote notes the file that e describes.
func (e *entry) wrote(info fs.FileInfo) {
	e.size, e.modified = info.Size(), info.ModTime().UnixNano()
	e.seen = e.modified
}

// hidden reports whether e comes from hide: an object has a name.
func (e *entry) hidden() bool { return e.object.Name == "" }

// unclaim is for a file that could not be taken away.
func (x *index) unclaim(e *entry) {
	if e.hidden() {
		x.cancel(e)
		return
	}
	x.going -= e.bytes
	e.state = present
	x.link(e)
	x.end(e)
}

// why an object goes.
type why int

const (
	forRoom why = iota + 1
	deleted     // or gone already
	damaged
)

// drop forgets e, which is leaving: its file is gone.
func (x *index) drop(e *entry, w why) {
	x.going -= e.bytes
	x.used -= e.bytes
	if t := e.object.Tenant; t != "" {
		if x.tenants[t] -= e.bytes; x.tenants[t] == 0 {
			delete(x.tenants, t)
		}
	}
	if w == forRoom {
		x.policy.Evict(&e.value)
	} else {
		x.policy.Remove(&e.value)
	}
	delete(x.entries, e.path)
	delete(x.promises, e.path)
	x.end(e)
}

// replace puts e in the place of old, which is present: its file was replaced by somebody else. What was promised of the one counts
// for the other.
func (x *index) replace(old, e *entry) {
	until, promised := x.promises[old.path]
	e.looked = old.looked
	x.forget(old)
	x.add(e)
	if promised {
		x.promises[e.path] = until
	}
}

// forget drops e, which is present, when its file was found to be gone.
func (x *index) forget(e *entry) {
	x.claim(e)
	x.drop(e, deleted)
}

// end wakes who waits for e, or for room.
func (x *index) end(e *entry) {
	close(e.done)
	x.wake()
}

func (x *index) wake() {
	close(x.changed)
	x.changed = make(chan struct{})
}

// remember notes that the file of a path was taken away.
func (x *index) remember(path string) {
	x.tick++
	x.removed[path] = x.tick
}

// removedSince reports whether a file was taken away after a tick.
func (x *index) removedSince(path string, tick uint64) bool {
	return x.removed[path] > tick || x.removedBefore[path] > tick
}

// promised returns whether somebody was promised the object.
func (x *index) promised(path string, now time.Time) bool {
	until, ok := x.promises[path]
	if ok && until <= now.UnixNano() {
		delete(x.promises, path)
		return false
	}
	return ok
}

// evictable reports whether e may go for room.
func (x *index) evictable(e *entry, now time.Time, minAge time.Duration) bool {
	return e.state == present && x.holds[e.path] == 0 && !x.promised(e.path, now) && (minAge == 0 || !e.young(now, minAge))
}

// young reports whether e was written or looked at a short time ago. A time in the future, as of a file that was
// copied from somewhere, does not count: such a file would stay for ever.
func (e *entry) young(now time.Time, minAge time.Duration) bool {
	newest := e.looked
	if e.seen < now.Add(time.Minute).UnixNano() {
		newest = max(newest, e.seen)
	}
	return now.UnixNano()-newest < int64(minAge)
}

// sample is how many leaves are compared to choose one that goes. The values of all objects change
// with every use, so an order of them would have to be made again each time.
const sample = 64

// victim returns the leaf that loses the least per byte, of a sample; nil if nothing may go.
func (x *index) victim(now time.Time, minAge time.Duration) *entry {
	var best *entry
	var least float64
	try := func(e *entry) {
		if !x.evictable(e, now, minAge) {
			return
		}
		if v := x.policy.Value(&e.value) / float64(max(e.bytes, 1)); best == nil || v < least {
			best, least = e, v
		}
	}
	if len(x.leaves) > 2*sample {
		for range sample {
			try(x.leaves[rand.IntN(len(x.leaves))])
		}
		if best != nil {
			return best
		}
	}
	for _, e := range x.leaves {
		try(e)
	}
	if len(x.leaves) == 0 {
		for _, e := range x.entries { // objects that are each other's parents
			try(e)
		}
	}
	return best
}

// choose claims objects of at least so many bytes, or none.
func (x *index) choose(need int64, now time.Time, minAge time.Duration) []*entry {
	var chosen []*entry
	for need > 0 {
		e := x.victim(now, minAge)
		if e == nil {
			for _, e := range chosen {
				x.unclaim(e)
			}
			return nil
		}
		x.claim(e)
		chosen = append(chosen, e)
		need -= e.bytes
	}
	return chosen
}
