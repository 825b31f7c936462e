package sidecar

import (
	"fmt"

	"github.com/ringcache/ringcache/shmring"
)

// Policy is how the memory of a segment is managed. The numbers stand in the
// sidecar.
type Policy uint8

const (
	// FIFO is vLLM's ring: freed in the order of allocation, by counts.
	FIFO Policy = 1
	// Pool places chunks anywhere; leases decide which can go.
	Pool Policy = 2
)

func (p Policy) String() string {
	switch p {
	case FIFO:
		return "fifo"
	case Pool:
		return "pool"
	}
	return fmt.Sprintf("Policy(%d)", uint8(p))
}

// Options are what a sidecar is made with.
type Options struct {
	Policy Policy
	// Generation is the vLLM version of the segment's wire, at most 24 bytes.
	Generation string
	// Owner is a label that sweeping goes by, at most 64 bytes: a service, not a
	// process.
	Owner string
	// Readers is the number of processes that read every object.
	Readers int
	// Objects is the most objects that are recorded at a time; 64 bytes each.
	Objects int
	// Slots is the most readers of this library at a time; 2 KiB each. 0 is 64.
	Slots int
	// RingSize and DataOffset are those of the segment, in bytes. Creating a segment
	// with a sidecar sets them.
	RingSize, DataOffset int
}

func (o Options) withDefaults() (Options, error) {
	if o.Slots == 0 {
		o.Slots = 64
	}
	return o, o.check()
}

func (o Options) check() error {
	switch {
	case o.Policy != FIFO && o.Policy != Pool:
		return fmt.Errorf("%w: %v", shmring.ErrInvalid, o.Policy)
	case len(o.Generation) > generationLen || len(o.Owner) > ownerLen:
		return fmt.Errorf("%w: Generation %q or Owner %q is too long, at most %d and %d bytes", shmring.ErrInvalid, o.Generation, o.Owner, generationLen, ownerLen)
	case o.Objects < 0 || o.Objects > maxObjects || o.Slots < 0 || o.Slots > maxSlots:
		return fmt.Errorf("%w: %d objects and %d reader slots, at most %d and %d", shmring.ErrInvalid, o.Objects, o.Slots, maxObjects, maxSlots)
	}
	return nil
}

// bytes returns the size of a sidecar with these options.
func (o Options) bytes() int64 {
	return offSlotTable + int64(o.Slots)*slotSize + int64(o.Objects)*entrySize
}

// Options returns what the sidecar was made with.
func (f *File) Options() Options { return f.opt }
