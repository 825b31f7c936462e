package objstore

import (
	"iter"

	"github.com/ringcache/ringcache/shmring/sidecar"
)

// Policy says where objects are placed and when they go.
type Policy = sidecar.Policy

const (
	// FIFO is vLLM's, bit for bit: freed in the order of allocation, when the
	// readers have counted as many reads as were issued.
	FIFO = sidecar.FIFO
	// Pool places objects anywhere and keeps each while a lease of it is open or
	// an aborted handle may still be read; beyond that it is a cache, and what is
	// cheapest to lose makes room. Stock readers can't tell the difference. It is
	// the zero value's.
	Pool = sidecar.Pool
)

// space allocates chunks. shmring's Ring and Pool do.
type space interface {
	Live() iter.Seq2[uint32, uint64]
	Len() int
	Used() uint64
	CheckStructure() error
}

// lifetimes is a Policy. Every method is called under the writer's lock.
type lifetimes interface {
	// alloc takes a chunk for a payload of so many bytes, and makes room for it.
	alloc(size int, tenant string, as turn) (address uint64, id uint32, payload []byte, err error)
	// extent returns the bytes that a chunk with such a payload takes.
	extent(size int) int64
	// publish makes a chunk that is filled readable and lasting.
	publish(o *object) error
	// discard gives up a chunk that was not published.
	discard(o *object)
	// hit: the object was asked for.
	hit(o *object)
	// changed: the uses, the leases or the state of o are others now. The error says
	// that the sidecar could not be told: then nobody may get a handle.
	changed(o *object) error
	// touched: o is protected by a touch now, or no longer.
	touched(o *object)
	// quarantine: a handle may be read of whose end nobody will tell, since its
	// request was aborted or it never had one.
	quarantine(o *object)
	// freeUnused frees what nobody needs.
	freeUnused() ([]uint32, error)
	// lineOf returns the line to wait in after an ErrFull, and mayFit says whether
	// its first waiter has to look again.
	lineOf(err error, tenant string) *line
	mayFit(*waiter) bool
	// clear forgets every object; no reservation and no lease is open.
	clear() error
}
