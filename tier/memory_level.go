package tier

import (
	"context"
	"time"
)

// MemoryLevel is a level whose bytes other processes read and write in place, in a shared
// segment, by offset. A [Lease] keeps what such a process was promised. Leases, with what they
// have, survive the process that serves the level.
//
// No method of a lease does input or output, or waits for another lease.
type MemoryLevel interface {
	Level
	// Segment returns where the bytes are. Offsets stay valid as long as Generation is the
	// same: a client that sees another one maps the segment anew, and has lost its leases.
	Segment() Segment
	// Lease opens a lease, or returns the open one of the same ID, whose Until becomes the later of the two.
	// A lease of another owner is fs.ErrPermission.
	Lease(ctx context.Context, o LeaseOptions) (Lease, error)
	// Leases lists the open leases.
	Leases() []LeaseState
}

// Segment names a shared segment.
type Segment struct {
	Name       string // in the directory of shared memory
	Size       int64  // bytes to map
	Generation uint64 // not 0
	// The most objects and open leases, and the most objects that leases have, each counted for each lease. 0
	// is no limit.
	Objects, Leases, Pins int
}

// LeaseOptions say whose a lease is.
type LeaseOptions struct {
	// ID is unique among the open leases, and survives a restart. 1 to 255 bytes.
	ID string
	// Owner is a label of the process or connection, for people and for Leases. At most 255
	// bytes.
	Owner string
	// Until is when the lease ends by itself; zero is never. Reservations do not end by
	// time: a client may be writing, and whoever serves it knows when it is not. A lease that
	// has some loses its pins at Until, and takes no new ones; it ends with its last
	// reservation, and Commit and Abort work until then.
	Until time.Time
}

// Lease is what one owner was promised. Its methods may be called from any goroutine.
// After its end they return ErrEnded for every element.
type Lease interface {
	ID() string
	// Pin keeps objects in place until Unpin or the end of the lease, and counts as a use. The errors are
	// ErrNotFound, and ErrPending of an object that is reserved. Pinning twice is fine.
	Pin(keys []Key) []Placed
	// Unpin gives pins up. What the lease does not have is skipped.
	Unpin(keys []Key)
	// Reserve takes room for objects, in order, so that a parent precedes its children. They are invisible
	// until Commit, which pins them. The errors are ErrExists, ErrPending of what is
	// reserved already, ErrFull and ErrTooLarge.
	Reserve(objects []Object) []Placed
	// Commit publishes reservations whose bytes are complete, in order, and pins them. The
	// errors, in the order of the keys, are ErrNotFound of what the lease has not reserved.
	Commit(keys []Key) []error
	// Held returns where objects are that the lease has: for an owner that comes back. It is no use, and pins
	// nothing. The errors are ErrPending, beside Object and Offset, of what the lease has reserved, and
	// ErrNotFound of what it does not have.
	Held(keys []Key) []Placed
	// Abort gives reservations up: nobody writes to their bytes any more.
	Abort(keys []Key) []error
	// SetUntil replaces LeaseOptions.Until.
	SetUntil(until time.Time) error
	// Release ends the lease: pins end, reservations are given up. Releasing twice is fine.
	Release()
	// State describes the lease.
	State() LeaseState
}

// Placed is where an object of a lease is.
type Placed struct {
	Object Object
	Offset uint64 // of the first byte in the segment
	// Bytes are the object's in this process, valid until the lease gives the object up. They must only
	// be written to between Reserve and Commit. If something cuts the segment short, an access to what is
	// gone ends the process, as one of a [Level] that reads into them does.
	Bytes []byte
	Err   error
}

// LeaseState describes an open lease.
type LeaseState struct {
	ID, Owner   string
	Until       time.Time // zero is never
	Pinned      []Key
	Reserved    []Key
	Bytes       int64 // of both
	FromRestart bool  // taken over from a process that is gone
}
