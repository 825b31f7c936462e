package objstore

import (
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmstore"
)

// fifoObject is what a FIFO keeps of one chunk.
type fifoObject struct {
	key     string
	address uint64
	id      uint32
	size    int // of the chunk, with its header
	state   fifoState
	note    []byte
	counts
	leases    int // of requests that have not ended
	sent      int // of them, of requests that were committed
	touched   bool
	signature serde.Signature
}

type fifoState uint8

const (
	fifoReserved  fifoState = iota // being written
	fifoCommitted                  // has its key
	fifoRetired                    // committed, but its key means another object now, or none
	fifoDiscarded                  // free as soon as it is the oldest
)

// needed returns the count of reads at which every handle of an object is read.
func (f *FIFO) needed(o *fifoObject) int64 { return o.uses * int64(f.readers) }

// find returns the object under a key that can be used once more.
func (f *FIFO) find(key string) (*fifoObject, error) {
	o, ok := f.index[key]
	if ok && !f.canUse(o.counts, 1) {
		f.retire(o)
		ok = false
	}
	if !ok {
		return nil, &shmstore.KeyError{Key: key, Err: ErrNotFound}
	}
	return o, nil
}

// retire frees the key of an object, which itself stays until its uses are read. An object that was used so
// often that another use could overflow its read count, an int32, is retired: its key is free for a new copy.
func (f *FIFO) retire(o *fifoObject) {
	f.fifoTable.retire(o)
	f.untouch(o)
	f.watch(o, false)
	f.wakeFirst()
}

func (f *FIFO) untouch(o *fifoObject) {
	if f.fifoTable.untouch(o) {
		f.wakeFirst()
	}
}

func (f *FIFO) watch(o *fifoObject, present bool) {
	if f.opt.Watch != nil {
		f.opt.Watch(shmstore.Change{Key: o.key, ID: o.id, Present: present})
	}
}

// place returns the handle of an object without its signature.
func (o *fifoObject) place() serde.Address { return serde.Address{Address: o.address, ID: o.id} }

func (f *FIFO) handle(o *fifoObject) serde.Address {
	h := o.place()
	h.Signature = o.signature
	return h
}

// reads is the read count of an object as it is now, 0 if it can't be read.
func (f *FIFO) reads(o *fifoObject) (n int64) {
	_ = f.guard(func() error {
		if c, err := shmring.ReadChunk(f.chunks.seg.Ring(), o.address); err == nil && len(c.Payload) >= countSize {
			n = readCount(c.Payload)
		}
		return nil
	})
	return n
}
