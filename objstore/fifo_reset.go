package objstore

import (
	"fmt"

	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/shmring"
)

// Clear implements [Store]. Handles that are under way can be read until their place is
// used again, and fail then with [StaleError]; but where ids restart (see
// Options.KeepIDs) they can match a new object.
func (f *FIFO) Clear() error {
	if err := f.lock(); err != nil {
		return err
	}
	defer f.unlock()
	if len(f.pending) > 0 {
		return fmt.Errorf("%w: %d reservations are open; commit or discard them before Clear", ErrBusy, len(f.pending))
	}
	if f.leases > 0 {
		return fmt.Errorf("%w: %d leases are open; end their requests before Clear", ErrBusy, f.leases)
	}
	for _, o := range f.index {
		f.watch(o, false)
	}
	f.ring.Clear()
	f.fifoTable.clear()
	f.wakeFirst()
	return nil
}

// ResetReaders implements [Store].
func (f *FIFO) ResetReaders(readers int) error {
	if readers != 0 {
		if err := checkReaders(readers); err != nil {
			return err
		}
	}
	if err := f.lock(); err != nil {
		return err
	}
	defer f.unlock()
	if readers == 0 {
		readers = f.readers
	}
	if c := sidecar.Of(f.chunks.seg); c != nil { // first: if it is gone, nothing is reset
		err := f.guard(func() error {
			s := c.State()
			s.Readers = readers
			c.SetState(s)
			return nil
		})
		if err != nil {
			return err
		}
	}
	f.readers = readers
	for _, r := range f.requests {
		if r.state == requestCommitted {
			r.become(requestEnded)
			r.leases.Clear()
		}
	}
	for _, o := range f.objects {
		if o.state == fifoReserved || o.state == fifoDiscarded {
			continue
		}
		o.leases -= o.sent
		f.leases -= o.sent
		o.sent = 0
		f.reset(&o.counts)
		_ = f.guard(func() error {
			c, err := shmring.ReadChunk(f.chunks.seg.Ring(), o.address)
			if err == nil && len(c.Payload) >= countSize {
				mem.Store32(c.Payload, 0)
			}
			return err
		})
	}
	f.wakeFirst()
	f.wakeShutdown()
	return nil
}
