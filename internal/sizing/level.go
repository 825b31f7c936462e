package sizing

import (
	"encoding/binary"

	"github.com/ringcache/ringcache/internal/evict"
)

// none is the parent of an object without one.
const none = -1

// Level is a level of a host: objects that have room for their bytes, and go by the rule of package evict. An
// object goes after its children.
type Level struct {
	capacity, used int64
	policy         *evict.Policy
	objects        map[int32]*object
	children       map[int32]int32 // how many objects of a parent are there, whether it is there or not
	leaves         evict.Candidates[*object]
}

type object struct {
	id, parent int32
	place      int32 // among the leaves, or -1
	bytes      int64
	value      evict.Entry
}

// NewLevel makes an empty level of so many bytes.
func NewLevel(capacity int64) *Level {
	return &Level{
		capacity: capacity, policy: evict.New(), objects: map[int32]*object{}, children: map[int32]int32{},
		leaves: evict.NewCandidates(func(o *object) *int32 { return &o.place }),
	}
}

// Use looks an object up, and reports whether it is there.
func (l *Level) Use(id int32) bool {
	o := l.objects[id]
	if o == nil {
		return false
	}
	l.policy.Hit(&o.value)
	return true
}

// Put stores an object that is not there, if it has room.
func (l *Level) Put(id, parent int32, bytes int64) {
	if bytes > l.capacity {
		return
	}
	l.adopt(parent, 1) // so that it stays
	for l.used+bytes > l.capacity {
		if !l.evict() {
			l.adopt(parent, -1)
			return
		}
	}
	o := &object{id: id, parent: parent, place: none, bytes: bytes}
	var key [4]byte
	binary.LittleEndian.PutUint32(key[:], uint32(id))
	l.policy.AddClaimed(&o.value, string(key[:]), evict.Claim{Bytes: bytes, Room: l.capacity})
	l.objects[id] = o
	l.used += bytes
	if l.children[id] == 0 {
		l.leaves.Add(o)
	}
}

// evict gives up a leaf whose loss costs little by the byte, and reports whether there was one.
func (l *Level) evict() bool {
	o, ok := l.leaves.Cheapest(func(o *object) (float64, bool) {
		return l.policy.Value(&o.value) / float64(max(o.bytes, 1)), true
	})
	if !ok {
		return false
	}
	l.leaves.Remove(o)
	l.policy.Evict(&o.value)
	delete(l.objects, o.id)
	l.used -= o.bytes
	l.adopt(o.parent, -1)
	return true
}

// adopt counts a child of a parent, which is a leaf without any.
func (l *Level) adopt(parent, n int32) {
	if parent == none {
		return
	}
	have := l.children[parent] + n
	if have == 0 {
		delete(l.children, parent)
	} else {
		l.children[parent] = have
	}
	o := l.objects[parent]
	switch {
	case o == nil:
	case have == 0:
		l.leaves.Add(o)
	case l.leaves.Has(o):
		l.leaves.Remove(o)
	}
}

// Found is where an object was found.
type Found uint8

// The levels, and none of them: then the object is computed.
const (
	InMemory Found = iota
	OnDisk
	InStore
	Nowhere
)

// Host is the levels of one host.
type Host struct {
	memory *Level
	disk   *Level // may be nil
}

// NewHost makes the empty levels of a host; without bytes there is no disk.
func NewHost(memory, disk int64) Host {
	h := Host{memory: NewLevel(memory)}
	if disk > 0 {
		h.disk = NewLevel(disk)
	}
	return h
}

// Use looks an object up in the levels of the host. Afterwards they all have it, as far as it has room.
func (h Host) Use(id, parent int32, bytes int64) Found {
	if h.memory.Use(id) {
		return InMemory
	}
	found := Nowhere
	switch {
	case h.disk == nil:
	case h.disk.Use(id):
		found = OnDisk
	default:
		h.disk.Put(id, parent, bytes)
	}
	h.memory.Put(id, parent, bytes)
	return found
}
