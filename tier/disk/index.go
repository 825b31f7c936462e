package disk

import (
	"crypto/sha256"
	"hash/maphash"
	"io/fs"
	"time"

	"github.com/ringcache/ringcache/internal/evict"
	"github.com/ringcache/ringcache/tier"
)

// state is where an entry is between Put and removal. It moves
//
//	(no entry) -> writing     register, before Put writes the temporary file
//	writing    -> present     publish, after the rename
//	writing    -> (no entry)  cancelWrite, after an error
//	(no entry) -> present     indexFile, for a file that a search or a lookup found
//	(no entry) -> removing    startRemovalOf, for a damaged file that has no entry
//	present    -> removing    startRemoval: eviction, Delete or damage
//	removing   -> (no entry)  endRemoval, after the file was removed
//	removing   -> present     cancelRemoval, after an error
//
// The method that moves an entry to writing or removing also moves it on. All others wait for entry.done, or
// answer as if there were no object.
type state uint8

const (
	writing  state = iota + 1 // a Put writes the temporary file; there is no file at the path yet
	present                   // the file is at its path, complete
	removing                  // a method is about to remove the file, or has just removed it
)

// id stands for a path in the index, since paths can be long. Readers compare the key in the file, so if two
// paths ever had the same id, one of them would be a miss.
type id [16]byte

func idOf(path string) id {
	sum := sha256.Sum256([]byte(path))
	return id(sum[:16])
}

// entry is what the index has of one file. The only text in it is the name of the file. Space, name and note
// of the object are in the file, so that the size of an entry does not depend on what clients choose.
type entry struct {
	id       id
	parent   id         // that of the parent's path; zero if there is no parent
	folder   *subfolder // nil is the root itself
	base     string     // its name in the folder
	tenant   *tenant
	key      keyHash
	cost     time.Duration // to make the object again
	bytes    int64         // on the medium, rounded up to blocks
	size     int64         // of the file
	modified int64         // its modification time in Unix nanoseconds, when its head was read or written
	// its newest modification time that was seen: if it is not modified, the file was written again
	newest     int64
	lastAsked  int64 // when Stat, Get, Put or Pin last asked for the object, in Unix nanoseconds
	value      evict.Entry
	done       chan struct{} // closed when the state writing or removing ends
	lastSearch uint32        // number of the search that saw the file last
	leaf       int32         // position in index.leaves, or -1
	tenantLeaf int32         // position in tenant.leaves, or -1
	state      state
	unindexed  bool // it was made by startRemovalOf, and counts no bytes
}

// path is that of the file, relative to the root.
func (e *entry) path() string {
	if e.folder == nil {
		return e.base
	}
	return e.folder.path + "/" + e.base
}

// keyHash tells apart two keys with the same path, and the spaces of objects, without their texts.
type keyHash struct{ space, name uint32 }

var keySeed = maphash.MakeSeed()

func hashOf(k tier.Key) keyHash {
	return keyHash{hashOfSpace(k.Space), uint32(maphash.String(keySeed, k.Name))}
}

func hashOfSpace(space string) uint32 { return uint32(maphash.String(keySeed, space)) }

// tenant has the counts of a tenant with objects here.
type tenant struct {
	name                      string
	entries                   int   // that are present or removing, or have room reserved
	bytes, reserved, removing int64 // as in index: removing is a part of bytes
	leaves                    evict.Candidates[*entry]
}

// maxTenants bounds the tenants whose bytes are counted, since their names are in memory.
const maxTenants = 4096

func placeOfLeaf(e *entry) *int32       { return &e.leaf }
func placeOfTenantLeaf(e *entry) *int32 { return &e.tenantLeaf }

// index has an entry for each file. Its methods are called with root.mu held.
//
// Invariants, which the function check of the tests verifies:
//
//   - used is the sum of bytes of entries present or removing, removingBytes of those removing, and
//     reserved of those writing whose room was reserved
//   - children counts, for each path, the entries present that have it as their parent
//   - leaves are the entries present without children, and those of a tenant are in its leaves, too
//   - no entry present is its own ancestor, so there is a leaf as long as an entry is present
//   - subfolders are the folders of entries, with the folders around them, and emptying counts those in which
//     every entry is being removed
//
// See docs/decisions.md, "The index of a disk level is the folder".
type index struct {
	block         int64
	entries       map[id]*entry
	subfolders    map[string]*subfolder
	leaves        evict.Candidates[*entry]
	children      map[id]int32
	tenants       map[string]*tenant
	policy        *evict.Policy
	objects       int64 // present
	used          int64
	reserved      int64
	removingBytes int64
	removing      int // entries
	emptying      int // places
	// holds counts, for the path of a parent, the children that are being stored: it must not be evicted.
	holds map[id]int
	// pins has the end of the pin of a path, in Unix nanoseconds.
	pins map[id]int64
	// removed has the tick at which this level removed the file of a path. A lookup or search that opened the
	// file before that tick must not enter it into the index. Ticks of the search before are in
	// removedBefore; older ones are not needed. A complete index takes no files from lookups, and notes none.
	removed, removedBefore map[id]uint64
	tick                   uint64
	// changed is closed, and replaced, when room may have become free, see reserveRoom.
	changed chan struct{}
}

func newIndex(block int64) *index {
	return &index{
		block: block, entries: map[id]*entry{}, subfolders: map[string]*subfolder{}, children: map[id]int32{},
		tenants: map[string]*tenant{}, policy: evict.New(), leaves: evict.NewCandidates(placeOfLeaf),
		holds: map[id]int{}, pins: map[id]int64{}, removed: map[id]uint64{}, changed: make(chan struct{}),
	}
}

// rounded returns the bytes on the medium of a file of so many bytes.
func (x *index) rounded(size int64) int64 { return (size + x.block - 1) / x.block * x.block }

// occupied is the bytes of files and folders, with those that are reserved.
func (x *index) occupied() int64 { return x.used + x.reserved + int64(len(x.subfolders))*x.block }

// leavingBytes is the part of occupied that becomes free when the removals that have begun end.
func (x *index) leavingBytes() int64 { return x.removingBytes + int64(x.emptying)*x.block }

// items is the number of files and folders, without those that are being removed.
func (x *index) items() int { return len(x.entries) + len(x.subfolders) - x.removing - x.emptying }

// insert puts e into the index, and counts its folders.
func (x *index) insert(e *entry) {
	x.entries[e.id] = e
	x.enterFolder(e)
}

// join makes e one of the entries of its tenant. A tenant beyond maxTenants is not counted, and e.tenant becomes
// nil, so that nothing else counts it either. All entries of a tenant share one record, and so one copy of its
// name.
func (x *index) join(e *entry) *tenant {
	t := e.tenant
	if t == nil {
		return nil
	}
	if known := x.tenants[t.name]; known != nil {
		e.tenant = known
	} else if len(x.tenants) < maxTenants {
		x.tenants[t.name] = t
	} else {
		e.tenant = nil
		return nil
	}
	e.tenant.entries++
	return e.tenant
}

// part takes join back. A tenant without entries leaves the index.
func (x *index) part(t *tenant) {
	if t.entries--; t.entries == 0 {
		delete(x.tenants, t.name)
	}
}

// charge counts the bytes of e for its tenant, and discharge takes that back.
func (x *index) charge(e *entry) {
	if t := x.join(e); t != nil {
		t.bytes += e.bytes
	}
}

func (x *index) discharge(e *entry) {
	if t := e.tenant; t != nil {
		t.bytes -= e.bytes
		x.part(t)
	}
}

// tenantOf returns the record of the tenant of e, which may not be in the index yet; nil if it is not counted.
func (x *index) tenantOf(e *entry) *tenant {
	if e.tenant == nil {
		return nil
	}
	return x.tenants[e.tenant.name]
}

// startWrite notes that an object is being written. Its room is not reserved yet.
func (x *index) startWrite(e *entry) {
	e.state, e.done = writing, make(chan struct{})
	x.entries[e.id] = e
}

// reserve counts the bytes and folders of an object that is being written, and unreserve takes that back.
func (x *index) reserve(e *entry) {
	x.reserved += e.bytes
	if t := x.join(e); t != nil {
		t.reserved += e.bytes
	}
	x.enterFolder(e)
}

func (x *index) unreserve(e *entry) {
	x.dropReserved(e)
	x.leaveFolder(e)
	x.wake()
}

// dropReserved takes back what reserve has counted, but the folders.
func (x *index) dropReserved(e *entry) {
	x.reserved -= e.bytes
	if t := e.tenant; t != nil {
		t.reserved -= e.bytes
		x.part(t)
	}
}

// cancelWrite drops the entry of a write that failed, after unreserve.
func (x *index) cancelWrite(e *entry) {
	delete(x.entries, e.id)
	x.notify(e)
}

// publish makes an object present whose file was renamed to its path.
func (x *index) publish(e *entry) {
	x.dropReserved(e)
	delete(x.removed, e.id) // the path has a file again, which lookups may enter
	x.notify(e)
	x.makePresent(e)
}

// makePresent makes e present and evictable. Its folders are counted already.
func (x *index) makePresent(e *entry) {
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

// startRemoval begins the removal of e, which is present. From now on lookups miss it.
func (x *index) startRemoval(e *entry) {
	x.unlink(e)
	e.state, e.done = removing, make(chan struct{})
	x.removingBytes += e.bytes
	x.removing++
	if e.tenant != nil {
		e.tenant.removing += e.bytes
	}
	x.dropKept(e.folder)
}

// startRemovalOf is startRemoval for a file that has no entry: it keeps others from the path.
func (x *index) startRemovalOf(path string) *entry {
	e := entryOf(path)
	e.state, e.done, e.unindexed = removing, make(chan struct{}), true
	x.insert(e)
	x.removing++
	x.dropKept(e.folder)
	return e
}

// matches reports whether size and modification time of a file are those of e.
func (e *entry) matches(info fs.FileInfo) bool {
	return info.Mode().IsRegular() && info.Size() == e.size && info.ModTime().UnixNano() == e.modified
}

// setFile sets size and time of the file that e describes.
func (e *entry) setFile(info fs.FileInfo) {
	e.size, e.modified = info.Size(), info.ModTime().UnixNano()
	e.newest = e.modified
}

// cancelRemoval makes e present again, since its file could not be removed.
func (x *index) cancelRemoval(e *entry) {
	x.removing--
	// An entry of startRemovalOf had no bytes and no policy: it leaves the index again.
	if e.unindexed {
		x.dropUse(e.folder)
		x.cancelWrite(e)
		return
	}
	x.addKept(e.folder)
	x.removingBytes -= e.bytes
	if e.tenant != nil {
		e.tenant.removing -= e.bytes
	}
	e.state = present
	x.link(e)
	x.notify(e)
}

// removalReason is why an object is removed. Only eviction counts in the history of the policy.
type removalReason int

const (
	evicted removalReason = iota + 1
	deleted               // or found to be gone
	damaged
)

// endRemoval drops e, which is removing, after its file was removed.
func (x *index) endRemoval(e *entry, reason removalReason) {
	x.removingBytes -= e.bytes
	x.used -= e.bytes
	x.removing--
	if t := e.tenant; t != nil && !e.unindexed {
		t.removing -= e.bytes
		x.discharge(e)
	}
	if reason == evicted {
		x.policy.Evict(&e.value)
	} else {
		x.policy.Remove(&e.value)
	}
	delete(x.entries, e.id)
	delete(x.pins, e.id)
	x.dropUse(e.folder)
	x.notify(e)
}

// replace puts e in the place of old, which is present: another program has replaced the file. A pin stays.
func (x *index) replace(old, e *entry) {
	until, isPinned := x.pins[old.id]
	e.lastAsked = old.lastAsked
	x.dropGone(old)
	x.insert(e)
	x.makePresent(e)
	if isPinned {
		x.pins[e.id] = until
	}
}

// dropGone drops e, which is present, since its file was found to be gone.
func (x *index) dropGone(e *entry) {
	x.startRemoval(e)
	x.endRemoval(e, deleted)
}

// notify wakes the calls that wait for e, and those that wait for room.
func (x *index) notify(e *entry) {
	close(e.done)
	x.wake()
}

// wake wakes the calls that wait for room.
func (x *index) wake() {
	close(x.changed)
	x.changed = make(chan struct{})
}

// noteRemoved notes that this level removed the file of a path.
func (x *index) noteRemoved(at id) {
	x.tick++
	x.removed[at] = x.tick
}

// removedSince reports whether this level removed the file of a path after a tick.
func (x *index) removedSince(at id, tick uint64) bool {
	return x.removed[at] > tick || x.removedBefore[at] > tick
}

// pinned reports whether a pin of a path has not ended.
func (x *index) pinned(at id, now time.Time) bool {
	until, ok := x.pins[at]
	if ok && until <= now.UnixNano() {
		delete(x.pins, at)
		return false
	}
	return ok
}
