package objstore

import (
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmstore"
)

// State implements [Store].
func (f *FIFO) State() (State, error) {
	if err := f.lock(); err != nil {
		return State{}, err
	}
	defer f.unlock()
	s := State{Ring: f.ring.State(), Used: f.ring.Used(), Leases: f.leases, Readers: f.readers}
	for id := range f.ring.Live() {
		o := f.objects[id]
		if o.state == fifoReserved || o.state == fifoDiscarded {
			continue
		}
		s.Objects = append(s.Objects, ObjectState{
			ObjectState: shmstore.ObjectState{
				Key: o.key, Address: o.address, ID: id, Bytes: int64(o.size), Indexed: o.state == fifoCommitted,
				Pinned: o.touched, Leases: o.leases,
			},
			Uses: o.uses,
		})
	}
	// In one guard, since one for each takes longer than all the rest. Where the
	// memory is gone nothing more was read.
	_ = f.guard(func() error {
		for i := range s.Objects {
			o := &s.Objects[i]
			if c, err := shmring.ReadChunk(f.chunks.seg.Ring(), o.Address); err == nil && len(c.Payload) >= countSize {
				o.Reads = readCount(c.Payload)
			}
		}
		return nil
	})
	return s, nil
}

// Stats implements [Store].
func (f *FIFO) Stats() (shmstore.Stats, error) {
	if err := f.lock(); err != nil {
		return shmstore.Stats{}, err
	}
	defer f.unlock()
	return shmstore.Stats{
		Objects: len(f.index), Chunks: f.ring.Len(), Used: int64(f.ring.Used()), Leases: f.leases,
		Requests: len(f.requests), Waiting: f.waiters.Len(), Misused: f.misused, Readers: f.readers,
		Woken: f.waiters.Woken, Polls: f.waiters.Polls,
	}, nil
}
