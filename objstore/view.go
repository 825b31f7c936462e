package objstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/serde"
)

// View is an object seen in place. Its value points into the segment: it must
// not be written to, and not be used after Release.
type View struct {
	sv      segmentView
	handle  Handle
	value   serde.Value
	counter *counter // nil: does not count, or has counted
	done    func()   // ends what keeps the object; nil if nothing does

	once sync.Once
	err  error
}

// Value returns the object. Its tensors are slices of the segment.
func (v *View) Value() serde.Value { return v.value }

// Item returns the object if it is an item, else nil.
func (v *View) Item() *serde.Item {
	it, _ := v.value.(*serde.Item)
	return it
}

// Handle returns the handle that the view was got by.
func (v *View) Handle() Handle { return v.handle }

// Check says whether the bytes are still the object's: called after they were
// used, a [StaleError] means that they may have been another's. The id in front
// of them is all there is to compare. A writer of this library destroys it
// before it writes anything else, so a nil error means that what was read so far
// was right, unless the new bytes repeat the id at that very place. It must not
// be called after Release.
func (v *View) Check() error {
	return v.sv.guard(v.handle, func() error { return v.sv.check(v.handle) })
}

// Clone copies the object out of the segment and checks the copy. It is valid
// for ever.
func (v *View) Clone() (serde.Value, error) {
	var c serde.Value
	err := v.sv.guard(v.handle, func() error {
		c = serde.Clone(v.value)
		return v.sv.check(v.handle)
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Release ends the view: from then on the writer may free the chunk. It counts the
// read, if its store counts; a reader with a slot has counted when it got the
// view. An error that is [ErrNotCounted], [ErrStale] or
// [ErrCorrupt] means that the read was not counted; any other is the lock's, for
// a read that was. Only the first call does anything; later ones return the
// same.
func (v *View) Release() error {
	v.once.Do(func() {
		if v.counter != nil {
			v.err = v.count()
		}
		if v.done != nil {
			v.done()
		}
		v.sv.seg.Release()
	})
	return v.err
}

func (v *View) count() error {
	return v.sv.guard(v.handle, func() error { return v.counter.read(v.sv, v.handle) })
}

// counter counts reads under the lock of the readers.
type counter struct {
	lock    Locker
	timeout time.Duration
	readers int64
}

func newCounter(l Locker, timeout time.Duration, readers int) *counter {
	if l == nil {
		return nil
	}
	if timeout == 0 {
		timeout = 10 * time.Second
	}
	return &counter{l, timeout, int64(readers)}
}

// under runs f for the chunk of h while the lock is held.
func (c *counter) under(ctx context.Context, sv segmentView, h Handle, f func(payload []byte)) (err error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	if err := c.lock.Lock(ctx); err != nil {
		return fmt.Errorf("%w: %d:%d: a process may have died with the readers' lock: %w", ErrNotCounted, h.Address, h.ID, err)
	}
	defer func() { err = errors.Join(err, c.lock.Unlock()) }()
	// The id is compared again, which upstream does not do, so that a handle that
	// is stale by now does not count on another object.
	chunk, err := sv.locate(h)
	if err != nil {
		return err
	}
	f(chunk.Payload)
	return nil
}

func (c *counter) read(sv segmentView, h Handle) error {
	mem.Fence() // what was read of the chunk stays before the count
	return c.under(context.Background(), sv, h, addRead)
}

// touch is the reader's touch of vLLM 0.12 to 0.31.
func (c *counter) touch(ctx context.Context, sv segmentView, h Handle) error {
	return c.under(ctx, sv, h, func(payload []byte) {
		if readCount(payload) >= c.readers {
			addRead(payload)
		}
	})
}
