package disk

import (
	"crypto/sha256"
	"hash/maphash"
	"io/fs"
	"math/rand/v2"
	"path"
	"strings"
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

// id stands for a path in the index: paths can be long. Whoever reads a file compares its key, so two paths of one id, which nobody
// has seen, would be a miss.
type id [16]byte

func idOf(path string) id {
	sum := sha256.Sum256([]byte(path))
	return id(sum[:16])
}

// entry is what the index has of one file. It has no text that a client chooses but the file's own name, if that is one; the others are
// in the file.
type entry struct {
	id       id
	parent   id     // of the path of the parent; zero if there is none
	folder   *place // nil is the root
	base     string // its name in the folder
	tenant   *tenant
	key      keyHash
	cost     time.Duration // as the object has it
	bytes    int64         // on the medium, rounded up to blocks
	size     int64         // of the file
	modified int64         // its time, in nanoseconds since 1970, when the object was read from it or written to it
	seen     int64         // its newest time that anybody saw: if that is not modified, the entry may describe another file
	looked   int64         // when somebody asked for it last
	value    evict.Entry
	done     chan struct{} // closed when it is not writing or leaving any more
	pass     uint32        // the search that saw it last
	leaf     int32         // place in index.leaves, or -1
	state    state
	hidden   bool // it comes from hide
}

// path is that of the file, relative to the root.
func (e *entry) path() string {
	if e.folder == nil {
		return e.base
	}
	return e.folder.path + "/" + e.base
}

// keyHash tells keys apart that have one file, and spaces, without their texts.
type keyHash struct{ space, name uint32 }

var keySeed = maphash.MakeSeed()

func hashOf(k tier.Key) keyHash {
	return keyHash{hashOfSpace(k.Space), uint32(maphash.String(keySeed, k.Name))}
}

func hashOfSpace(space string) uint32 { return uint32(maphash.String(keySeed, space)) }

// place is a folder below the root with files of entries. It takes a block, as a file does.
type place struct {
	path  string
	in    *place // nil is the root
	uses  int32  // entries and places in it
	stays int32  // of them, those that are not leaving
}

// tenant is one that has objects here.
type tenant struct {
	name    string
	objects int
	bytes   int64
}

// mostTenants bounds the tenants whose bytes are counted: their names are in memory.
const mostTenants = 4096

// index is what a root has. Its methods are called under the lock of the root.
//
// Invariants, which check verifies: used is the sum of bytes of what is present or leaving,
// reserved of what is being written, going of what is leaving; children counts for each path what is
// present and has it as its parent; leaves are those that are present and have no children; places are the
// folders of entries, with the folders around them, and emptying counts those of which nothing stays. Nothing that is
// present descends from itself, so there is a leaf as long as there is anything.
type index struct {
	block    int64
	entries  map[id]*entry
	places   map[string]*place
	leaves   []*entry
	children map[id]int32
	tenants  map[string]*tenant
	policy   *evict.Policy
	objects  int64 // present
	used     int64
	reserved int64
	going    int64
	leaving  int // entries
	emptying int // places
	// holds counts the objects being stored whose parent has a path.
	holds map[id]int
	// promises are when those of a path end, in nanoseconds since 1970.
	promises map[id]int64
	// removed has the tick at which a file was taken away, so that nobody who opened it before
	// puts it back into the index. It is needed while files are found by searching.
	removed, removedBefore map[id]uint64
	tick                   uint64
	// changed is closed, and replaced, when room may have become free.
	changed chan struct{}
}

func newIndex(block int64) *index {
	return &index{
		block: block, entries: map[id]*entry{}, places: map[string]*place{}, children: map[id]int32{}, tenants: map[string]*tenant{}, policy: evict.New(),
		holds: map[id]int{}, promises: map[id]int64{}, removed: map[id]uint64{}, changed: make(chan struct{}),
	}
}

// taken is what files and folders take, and what is being written will.
func (x *index) taken() int64 { return x.used + x.reserved + int64(len(x.places))*x.block }

// freeing is what of it is about to go.
func (x *index) freeing() int64 { return x.going + int64(x.emptying)*x.block }

// items are the files and folders that the index has, without those that are about to go.
func (x *index) items() int { return len(x.entries) + len(x.places) - x.leaving - x.emptying }

// enter makes room for e among the files and folders of the index.
func (x *index) enter(e *entry) {
	x.entries[e.id] = e
	x.settle(e)
}

// settle gives e its place among the folders, and unsettle takes it away.
func (x *index) settle(e *entry) {
	e.folder = x.use(e.folder)
	x.stay(e.folder)
}

func (x *index) unsettle(e *entry) {
	x.leave(e.folder)
	x.unuse(e.folder)
	if e.folder != nil {
		e.folder = &place{path: e.folder.path}
	}
}

// missing is how many folders a file needs that the index does not have.
func (x *index) missing(e *entry) (n int) {
	if e.folder != nil {
		for p := e.folder.path; p != "." && x.places[p] == nil; p = path.Dir(p) {
			n++
		}
	}
	return n
}

// use counts a use of a folder, of which p has the path, and returns the one that the index has.
func (x *index) use(p *place) *place {
	if p == nil {
		return nil
	}
	known := x.places[p.path]
	if known == nil {
		known = &place{path: strings.Clone(p.path)}
		known.in = x.use(placeOf(known.path))
		x.places[known.path] = known
		x.emptying++
	}
	known.uses++
	return known
}

func (x *index) unuse(p *place) {
	for ; p != nil; p = p.in {
		if p.uses--; p.uses > 0 {
			return
		}
		delete(x.places, p.path)
		x.emptying--
	}
}

// stay counts that something in a folder stays, and leave the reverse.
func (x *index) stay(p *place) {
	for ; p != nil; p = p.in {
		if p.stays++; p.stays > 1 {
			return
		}
		x.emptying--
	}
}

func (x *index) leave(p *place) {
	for ; p != nil; p = p.in {
		if p.stays--; p.stays > 0 {
			return
		}
		x.emptying++
	}
}

// placeOf returns the folder of a path, which no index has yet.
func placeOf(p string) *place {
	if parent := path.Dir(p); parent != "." {
		return &place{path: parent}
	}
	return nil
}

// charge and discharge count the bytes of e for its tenant.
func (x *index) charge(e *entry) {
	if t := e.tenant; t != nil {
		if known := x.tenants[t.name]; known != nil {
			e.tenant = known
		} else if len(x.tenants) < mostTenants {
			x.tenants[t.name] = t
		} else {
			e.tenant = nil
			return
		}
		e.tenant.objects++
		e.tenant.bytes += e.bytes
	}
}

func (x *index) discharge(e *entry) {
	if t := e.tenant; t != nil {
		t.bytes -= e.bytes
		if t.objects--; t.objects == 0 {
			delete(x.tenants, t.name)
		}
	}
}

// begin notes that an object is being written. Its room is not reserved.
func (x *index) begin(e *entry) {
	e.state, e.leaf, e.done = writing, -1, make(chan struct{})
	x.entries[e.id] = e
}

// reserve and unreserve take room for what is being written, and its folders.
func (x *index) reserve(e *entry) {
	x.reserved += e.bytes
	x.settle(e)
}

func (x *index) unreserve(e *entry) {
	x.reserved -= e.bytes
	x.unsettle(e)
	x.wake()
}

// cancel forgets what was being written, and has no room any more.
func (x *index) cancel(e *entry) {
	delete(x.entries, e.id)
	x.end(e)
}

// publish makes what was being written present.
func (x *index) publish(e *entry) {
	x.reserved -= e.bytes
	delete(x.removed, e.id)
	x.end(e)
	x.add(e)
}

// add makes e present, which was entered.
func (x *index) add(e *entry) {
	e.state = present
	x.used += e.bytes
	x.charge(e)
	claim := evict.Claim{Cost: float64(e.cost), Bytes: e.bytes, Room: x.used}
	if e.tenant != nil {
		claim.Tenant = e.tenant.name
	}
	x.policy.AddClaimed(&e.value, string(e.id[:]), claim)
	x.link(e)
	x.wake()
}

// link enters e, which is present, into its family.
func (x *index) link(e *entry) {
	x.objects++
	e.leaf = -1
	if x.children[e.id] == 0 {
		x.addLeaf(e)
	}
	if x.closesRing(e) {
		e.parent = id{}
	}
	if e.parent != (id{}) {
		x.children[e.parent]++
		if p := x.entries[e.parent]; p != nil && p.leaf >= 0 {
			x.removeLeaf(p)
		}
	}
}

// mostAncestors bounds what is looked at under the lock. Nobody has chains of so many.
const mostAncestors = 1 << 13

// closesRing reports whether e, which is about to be linked, is an ancestor of its parent. Only what has children can be. One whose parent has more
// ancestors than anybody looks at counts as one that is: it goes without a parent.
func (x *index) closesRing(e *entry) bool {
	if x.children[e.id] == 0 {
		return false
	}
	steps := 0
	for p := e.parent; p != (id{}); {
		if steps++; p == e.id || steps > mostAncestors {
			return true
		}
		up := x.entries[p]
		if up == nil || up.state != present {
			return false // if it comes, it is looked at then
		}
		p = up.parent
	}
	return false
}

func (x *index) unlink(e *entry) {
	x.objects--
	if e.leaf >= 0 {
		x.removeLeaf(e)
	}
	if e.parent == (id{}) {
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
	e.leaf = int32(len(x.leaves))
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
	x.leaving++
	x.leave(e.folder)
}

// hide keeps others from a path that is not in the index, while its file is about to go.
func (x *index) hide(path string) *entry {
	e := entryOf(path)
	e.state, e.done, e.hidden = leaving, make(chan struct{}), true
	x.enter(e)
	x.leaving++
	x.leave(e.folder)
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

// unclaim is for a file that could not be taken away.
func (x *index) unclaim(e *entry) {
	x.leaving--
	if e.hidden {
		x.unuse(e.folder)
		x.cancel(e)
		return
	}
	x.stay(e.folder)
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
	x.leaving--
	if !e.hidden {
		x.discharge(e)
	}
	if w == forRoom {
		x.policy.Evict(&e.value)
	} else {
		x.policy.Remove(&e.value)
	}
	delete(x.entries, e.id)
	delete(x.promises, e.id)
	x.unuse(e.folder)
	x.end(e)
}

// replace puts e in the place of old, which is present: its file was replaced by somebody else. What was promised of the one counts
// for the other.
func (x *index) replace(old, e *entry) {
	until, promised := x.promises[old.id]
	e.looked = old.looked
	x.forget(old)
	x.enter(e)
	x.add(e)
	if promised {
		x.promises[e.id] = until
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
func (x *index) remember(at id) {
	x.tick++
	x.removed[at] = x.tick
}

// removedSince reports whether a file was taken away after a tick.
func (x *index) removedSince(at id, tick uint64) bool {
	return x.removed[at] > tick || x.removedBefore[at] > tick
}

// promised returns whether somebody was promised the object.
func (x *index) promised(at id, now time.Time) bool {
	until, ok := x.promises[at]
	if ok && until <= now.UnixNano() {
		delete(x.promises, at)
		return false
	}
	return ok
}

// evictable reports whether e may go for room.
func (x *index) evictable(e *entry, now time.Time, minAge time.Duration) bool {
	return e.state == present && x.holds[e.id] == 0 && !x.promised(e.id, now) && (minAge == 0 || !e.young(now, minAge))
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
	return best
}

// choose claims so many objects that at least so many bytes, and files and folders, go; or none.
func (x *index) choose(need int64, items int, now time.Time, minAge time.Duration) []*entry {
	var chosen []*entry
	for need > 0 || items > 0 {
		e := x.victim(now, minAge)
		if e == nil {
			for _, e := range chosen {
				x.unclaim(e)
			}
			return nil
		}
		freeing, n := x.freeing(), x.items()
		x.claim(e)
		chosen = append(chosen, e)
		need -= x.freeing() - freeing
		items -= n - x.items()
	}
	return chosen
}
