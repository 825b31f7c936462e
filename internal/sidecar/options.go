package sidecar

import "fmt"

// Policy is how the memory of a segment is managed. Sidecars contain its number.
type Policy uint8

const (
	// FIFO is vLLM's ring: chunks are freed in the order of their allocation, by counts.
	FIFO Policy = 1
	// Pool places chunks anywhere and frees them in any order, by leases.
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

// Options describe a segment and the size of its sidecar.
type Options struct {
	Policy Policy
	// Generation is the vLLM version whose wire format the segment has, at most 24 bytes.
	Generation string
	// Owner is a label, at most 64 bytes, by which Sweep of package segment chooses. It
	// names a service, not a process.
	Owner string
	// Readers is the number of processes that read every object.
	Readers int
	// Objects is the largest number of objects in the table; each takes 64 bytes.
	Objects int
	// Slots is the largest number of readers with a slot; each takes 2 KiB. 0 means 64.
	Slots int
	// RingSize is the size of the segment's ring and DataOffset the number of bytes in
	// front of it. Package segment sets both when it creates a segment.
	RingSize, DataOffset int
}

func (o Options) withDefaults() (Options, error) {
	if o.Slots == 0 {
		o.Slots = 64
	}
	if err := o.check(); err != nil {
		return o, fmt.Errorf("%w: %w", errInvalid, err)
	}
	return o, nil
}

// check returns what no sidecar can have.
func (o Options) check() error {
	switch {
	case o.Policy != FIFO && o.Policy != Pool:
		return fmt.Errorf("no such policy: %v", o.Policy)
	case len(o.Generation) > generationLen || len(o.Owner) > ownerLen:
		return fmt.Errorf("too long: Generation %q or Owner %q, at most %d and %d bytes",
			o.Generation, o.Owner, generationLen, ownerLen)
	case o.Objects < 0 || o.Objects > maxObjects || o.Slots < 0 || o.Slots > maxSlots:
		return fmt.Errorf("%d objects and %d reader slots, at most %d and %d", o.Objects, o.Slots, maxObjects, maxSlots)
	}
	return nil
}

// bytes returns the size of a sidecar with these options.
func (o Options) bytes() int64 {
	return slotsStart + int64(o.Slots)*slotSize + int64(o.Objects)*entrySize
}
