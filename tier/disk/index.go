package disk

import (
	"crypto/sha256"
	"hash/maphash"
	"io/fs"
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

// id stands for a path in the index: paths can be long. Whoever reads a file compares its key, so if two
// paths ever had one id, one of them would be a miss.
type id [16]byte

func idOf(path string) id {
	sum := sha256.Sum256([]byte(path))
	return id(sum[:16])
}

// entry is what the index has of one file. It has no text that a client chooses but the file's own name, if
// that is one; the others are in the file.
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
// See docs/decisions.md, "The index of a disk level is the folder".
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

// rounded is what a file of so many bytes takes.
func (x *index) rounded(size int64) int64 { return (size + x.block - 1) / x.block * x.block }

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

// replace puts e in the place of old, which is present: its file was replaced by somebody else. What was
// promised of the one counts for the other.
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
