package inspect

import (
	"time"

	"github.com/ringcache/ringcache/pycompat"
)

// Options say where segments are.
type Options struct {
	// Dir is the directory of shared memory, /dev/shm if empty.
	Dir string
	// Generation is that of segments without a sidecar. nil finds out whether there is a secret in front of
	// the ring, by the headers of chunks, and takes none while no chunk is there.
	Generation *pycompat.Generation
	// Brief reads the table of a pool alone, and none of its chunks, which takes about a third of the time.
	// Objects have no key then, and damage within chunks is not seen.
	Brief bool
}

// State is what a segment, or an object, is.
type State string

const (
	// Alive is a segment whose writer has its lock.
	Alive State = "alive"
	// Closed is a segment whose last writer has ended in order, and left its objects for the next one.
	Closed State = "closed"
	// Orphan is a segment whose writer was killed.
	Orphan State = "orphan"
	// Foreign is a ring without a sidecar, such as vLLM's own. Whether its writer lives can't be known; see
	// [Summary.OpenBy].
	Foreign State = "foreign"
	// Denied is a file that this user may not read, or must not trust.
	Denied State = "denied"
	// Damaged is a segment, or an object, with contents that can't be right.
	Damaged State = "damaged"

	// Evictable is an object that may go when its room is needed.
	Evictable State = "evictable"
	// InUse is an object that a request, a lease or a reader needs.
	InUse State = "in use"
	// Reserved is a chunk that is being written under a lease.
	Reserved State = "reserved"
	// Retired is an object whose key means another object by now, or none. It goes when nobody needs it.
	Retired State = "retired"
	// Unknown is a chunk of a ring: whether it was freed is known to its writer alone.
	Unknown State = "unknown"
)

// Summary describes a segment. Numbers that can't be known are -1.
type Summary struct {
	Name   string `json:"name"`
	State  State  `json:"state"`
	Policy string `json:"policy"` // pool, fifo, or foreign without a sidecar
	Format string `json:"format"` // the vLLM release of the wire, or the name of another format of payloads
	Owner  string `json:"owner"`  // label of the service
	PID    int    `json:"pid"`    // of the last writer, by its own account; 0 is unknown
	UID    int    `json:"uid"`    // of the files
	// OpenBy are other processes that have a foreign segment open, as far as this user can see them.
	OpenBy []int `json:"open_by,omitempty"`

	Size       int64 `json:"size"`  // bytes of the ring
	Used       int64 `json:"used"`  // bytes of chunks, reserved ones too, with what is lost to alignment
	Bytes      int64 `json:"bytes"` // of all files of the segment
	DataOffset int64 `json:"data_offset"`

	Objects    int64 `json:"objects"`
	MaxObjects int64 `json:"max_objects"`
	InUse      int64 `json:"in_use"`  // objects that someone may need
	Damaged    int64 `json:"damaged"` // entries that can't be right

	Readers     int `json:"readers"`
	DeadReaders int `json:"dead_readers"` // that have died with a slot
	ReaderSlots int `json:"reader_slots"`
	Leases      int `json:"leases"` // of a memory level, such as the daemon's

	Epoch  uint64    `json:"epoch"` // how many writers the segment has had
	NextID int64     `json:"next_id"`
	Made   time.Time `json:"made"` // when the file was made; else when it was last changed

	// Problem is why State is Damaged or Denied, or what else is wrong.
	Problem string `json:"problem,omitempty"`
}

// Fill is the share of the ring that chunks take, 0 to 1, and -1 if it is not known.
func (s Summary) Fill() float64 {
	if s.Used < 0 || s.Size <= 0 {
		return -1
	}
	return float64(s.Used) / float64(s.Size)
}

// Object describes an object of a pool, or a chunk of a ring. Numbers that can't be known are -1.
type Object struct {
	// Key is how the store knows the object. That of a memory level consists of Space and Name.
	Key    string `json:"key"`
	Space  string `json:"space,omitempty"`
	Name   string `json:"name,omitempty"`
	Parent string `json:"parent,omitempty"`
	Tenant string `json:"tenant,omitempty"`

	State   State  `json:"state"`
	Address int64  `json:"address"` // of the chunk in the ring
	ID      uint32 `json:"id"`
	Size    int64  `json:"size"`  // bytes of the object, or of a chunk whose content is not known
	Chunk   int64  `json:"chunk"` // bytes that its chunk takes

	Reads int64 `json:"reads"` // by vLLM's workers
	// Issued is the number of Reads at which each handle that was given out is read.
	Issued int64         `json:"issued"`
	Cost   time.Duration `json:"cost_ns,omitempty"` // to make it again
	Stored time.Time     `json:"stored,omitzero"`   // when it was published
	HeldBy []string      `json:"held_by,omitempty"` // names of [Holder]s

	Problem string `json:"problem,omitempty"`
}

// Holder is who keeps objects from being evicted: a reader with a slot, or a lease.
type Holder struct {
	Kind     string    `json:"kind"` // reader or lease
	Name     string    `json:"name"`
	Client   string    `json:"client,omitempty"` // of a lease, as its owner calls itself
	PID      int       `json:"pid"`              // by its own account; 0 is unknown
	Dead     bool      `json:"dead"`             // a reader that has died with its slot
	Until    time.Time `json:"until,omitzero"`   // end of a lease; zero is never
	Pinned   int       `json:"pinned"`           // objects
	Reserved int       `json:"reserved"`         // objects that it writes
	Bytes    int64     `json:"bytes"`            // of the chunks of both

	ids []uint32 // pinned
}
