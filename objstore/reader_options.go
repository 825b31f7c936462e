package objstore

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/shmring/segment"
)

// ReaderOptions describe the store that a reader expects. RingSize and Generation must
// be the writer's: the segment has no header to read them from.
type ReaderOptions struct {
	// RingSize is the bytes of the writer's ring.
	RingSize int
	// Readers is the number of processes that read every object. It is used by
	// Touch in generations that count touches, and not otherwise.
	Readers int
	// Generation of the writer; nil is the newest known.
	Generation *pycompat.Generation
	// Lock is the lock of the other readers, usually a *pycompat.Semaphore;
	// reads are counted under it. nil observes without counting: the segment is
	// mapped read-only, and the writer learns nothing of this reader.
	Lock Locker
	// SidecarLock counts reads under a lock in the sidecar instead of Lock, for
	// segments whose readers are all of this library: it is free again when its
	// holder dies, as a Python lock is not.
	SidecarLock bool
	// LockTimeout bounds every wait for Lock, whose holder may have died; 0 is
	// 10 s.
	LockTimeout time.Duration
	// Dir is the directory of shared memory, /dev/shm if empty.
	Dir string
	// Segment, if not nil, is read instead of one that Open attaches to by its name:
	// the caller attached it, or made it over private memory. Open takes no slot and no
	// SidecarLock then. The reader owns the segment from then on and closes it.
	Segment *segment.Segment
	// Logger gets a line for each view that was dropped without Release, with the place
	// where it was got. nil is silent.
	Logger *slog.Logger
}

// Validate returns what is wrong with the options.
func (o ReaderOptions) Validate() error {
	_, err := o.resolve()
	return err
}

// resolve returns the options with the generation, if they are valid.
func (o ReaderOptions) resolve() (ReaderOptions, error) {
	var err error
	if o.Generation, err = pycompat.Resolve(o.Generation); err != nil {
		return o, err
	}
	if err := checkShape(o.RingSize, o.Readers); err != nil {
		return o, err
	}
	switch {
	case o.SidecarLock && o.Lock != nil:
		return o, fmt.Errorf("%w: Lock and SidecarLock are both set", errInvalid)
	case o.SidecarLock && o.Segment != nil:
		return o, fmt.Errorf("%w: SidecarLock needs a segment that Open attaches to, not Segment", errInvalid)
	case o.LockTimeout < 0:
		return o, fmt.Errorf("%w: LockTimeout %v is negative", errInvalid, o.LockTimeout)
	case o.Segment != nil:
		err = matches(o.Segment, o.RingSize, o.Generation)
	}
	return o, err
}

// Locker is a lock between processes. *pycompat.Semaphore is one. If a Locker has a method
// TryLock() (bool, error), which does not wait, that is asked first.
type Locker interface {
	Lock(ctx context.Context) error
	Unlock() error
}
