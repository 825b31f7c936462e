package tier

import (
	"context"
	"time"
)

// MemoryLevel is a level whose bytes other processes read and write in place, in a shared segment, by
// offset. A [Lease] keeps what such a process has pinned or reserved. The level is the only one that
// records who has what, and until when: leases, with what they have, survive the process that serves the level.
//
// Each call looks at the clock first, and ends what ends by then. A large lease is let go of in slices,
// so no call waits long for the end of another's lease; a part of it may still be in use for some
// milliseconds. The [Account] of a lease learns of its end by time.
//
// No method of a lease does input or output, or waits for another lease.
type MemoryLevel interface {
	Level
	// Segment returns where the bytes are. Offsets stay valid as long as Generation is the
	// same: a client that sees another one maps the segment anew, and has lost its leases.
	Segment() Segment
	// Lease opens a lease, or returns the open one of the same ID, whose Until becomes the later of the
	// two. If o has an Account, that is charged from then on for what the lease has, in place of the one
	// before. NoUse counts from then on. A lease of another owner is fs.ErrPermission.
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
	// Until is when the lease loses its pins; zero is never. It takes no new ones then, and without
	// reservations it ends. Its reservations stay for WriteTime, since a client may be writing to them:
	// Commit, which pins nothing then, and Abort work until that has passed, and the lease ends with the
	// last of them. SetUntil makes it an ordinary lease again. If Until has a monotonic reading, as
	// times of time.Now have, reservations stay until it has passed by that, too.
	Until time.Time
	// Account is charged for what the lease has; nil is nobody.
	Account Account
	// NoUse is set by who pins objects for work of its own, and not for somebody who asked for them: to
	// eviction the pins are no uses.
	NoUse bool
}

// WriteTime is how long reservations stay after the time of their lease. A client begins no write after
// that time, and none takes as long. It is counted by the monotonic clock, which nobody sets, and which
// stands still while the machine sleeps; after a restart it is counted anew.
const WriteTime = 10 * time.Minute

// An Account is charged for the objects of leases. The level calls it while it holds its locks: methods
// must not wait, nor call the level or a lease.
type Account interface {
	// Charge is called before a lease gets an object that it does not have. An error refuses the object,
	// and is the answer about it.
	Charge(c Charge) error
	// Credit takes back the charge for an object of size bytes: the lease has given it up, or did not get it.
	Credit(size int64)
	// Expired reports that the lease has ended by time. What a large one had may be credited afterwards.
	Expired()
}

// A Charge is for one object of one lease.
type Charge struct {
	Size int64 // bytes of the object
	// Had is set if the lease has the object already, as one from before a restart. Charge can't refuse it.
	Had bool
	// What all leases with an account have if this is charged: objects and their bytes, each object
	// once; and pins and reservations, each object for each lease.
	Objects, Bytes, Pins int64
}

// Lease is what one owner has pinned and reserved. Its methods may be called from any goroutine.
// After its end they return ErrEnded for every element.
type Lease interface {
	ID() string
	// Pin keeps objects in place until Unpin or the end of the lease, and counts as a use, unless the lease
	// has NoUse. The errors are ErrNotFound, and ErrPending of an object that is reserved. Pinning twice is
	// fine.
	Pin(keys []Key) []Placed
	// PinPrefix is Pin for chains: it ends with the first object that it can't pin, and so does the answer.
	PinPrefix(keys []Key) []Placed
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
	// nothing. The errors are ErrPending, beside the place, of what the lease has reserved, and ErrNotFound of what it
	// does not have.
	Held(keys []Key) []Placed
	// Abort gives reservations up: nobody writes to their bytes any more.
	Abort(keys []Key) []error
	// SetUntil replaces LeaseOptions.Until.
	SetUntil(until time.Time) error
	// Expire ends the pins as if Until had passed. Reservations stay for WriteTime, and as long after Until. A
	// restart goes by Until alone: a lease whose Until is still to come is open again.
	Expire()
	// Release ends the lease: pins end, reservations are given up. Releasing twice is fine.
	Release()
	// ReleaseSome is Release of a lease with up to 64 objects. Of a larger one, which stays open, it gives up
	// about as many, and reports that there is more: whoever calls it until it returns false can let others
	// work in between.
	ReleaseSome() (more bool)
	// State describes the lease, with all its keys.
	State() LeaseState
	// Summary describes the lease by numbers, which costs the same however much it has.
	Summary() LeaseSummary
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

// LeaseSummary is what a lease has.
type LeaseSummary struct {
	Pinned, Reserved int   // objects
	Bytes            int64 // of both
	Until            time.Time
	Expired          bool // Until has passed, or Expire was called: there are no pins
	Ended            bool // there is nothing any more
}
