package objstore

import (
	"errors"
	"math"

	"github.com/ringcache/ringcache/internal/fault"
	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/segment"
	"github.com/ringcache/ringcache/shmstore"
)

// The payload of a chunk, little-endian (shm_object_storage.py, 0.11.0 to
// 0.33.0):
//
//	offset  bytes  field
//	0       4      number of reads, int32
//	4       ...    metadata pickle
//	...     ...    padding, none in what upstream writes
//	end-n   n      data frames, n from the metadata
const countSize = 4

func readCount(payload []byte) int64 {
	return int64(int32(mem.LoadStable32(payload)))
}

// addRead counts one read. The count stops at its largest value instead of
// turning negative.
func addRead(payload []byte) {
	if n := readCount(payload); n < math.MaxInt32 {
		mem.Store32(payload, uint32(int32(n+1)))
	}
}

// chunks are those of a segment, for whoever looks at them: a writer or a reader.
type chunks struct {
	seg     *segment.Segment
	options serde.Options
	// held reports that a reader's slot names the chunk, and that its id was right
	// after that. The writer takes the id away for a moment when it would like to
	// evict the chunk, and gives it back when it sees the hold: no id is as good
	// as the right one then.
	held bool
	// sidecar is a reader's; a writer's is the segment's.
	sidecar *sidecar.File
}

// same reports whether the id found at a handle's address is the handle's.
func (c chunks) same(h serde.Address, found uint32) bool {
	return found == h.ID || c.held && found == shmring.DeadID
}

// locate returns the chunk of a handle after checking the id. The segment must
// be held.
func (c chunks) locate(h serde.Address) (shmring.Chunk, error) {
	chunk, err := shmring.ReadChunk(c.seg.Ring(), h.Address)
	// An id of 2^31 or more is no id: Python reads it as negative.
	if !c.same(h, chunk.ID) || h.ID >= shmring.IDLimit {
		return shmring.Chunk{}, &StaleError{Address: h.Address, ID: h.ID, Found: chunk.ID}
	}
	if err == nil && len(chunk.Payload) < countSize {
		err = &shmring.CorruptError{Offset: h.Address, What: "payload size", Got: int64(len(chunk.Payload)), Want: "4 or more"}
	}
	if err != nil {
		return shmring.Chunk{}, c.corrupt(h, err)
	}
	return chunk, nil
}

// decode returns the object in a chunk, whose tensors point into it.
func (c chunks) decode(h serde.Address, payload []byte) (serde.Value, error) {
	m, data, err := serde.ParsePayload(payload[countSize:])
	if err != nil {
		return nil, c.corrupt(h, err)
	}
	v, err := serde.DecodeValue(m, data, c.options)
	if err != nil {
		return nil, c.corrupt(h, err)
	}
	return v, nil
}

// read locates and decodes, and looks at the id once more: what was decoded
// may have changed meanwhile. It is called in a guard.
func (c chunks) read(h serde.Address) (serde.Value, error) {
	first := c
	first.held = false // which it is only now
	chunk, err := first.locate(h)
	if err != nil {
		return nil, err
	}
	v, err := c.decode(h, chunk.Payload)
	if again := c.check(h); again != nil {
		return nil, again
	}
	return v, err
}

// readVerified is read of a handle whose signature is right for a key, in generations
// with signatures. It is called in a guard.
func (c chunks) readVerified(key string, h serde.Address) (serde.Value, error) {
	if err := c.verify(key, h); err != nil {
		return nil, err
	}
	return c.read(h)
}

// verify checks the signature of a handle for a key, in generations with signatures. It
// is called in a guard.
func (c chunks) verify(key string, h serde.Address) error {
	if !c.options.Generation.Signed {
		return nil
	}
	return verify(c.seg.Secret(), key, h)
}

// check compares the id at the handle's address again.
func (c chunks) check(h serde.Address) error {
	mem.Fence()
	if chunk, _ := shmring.ReadChunk(c.seg.Ring(), h.Address); !c.same(h, chunk.ID) {
		return &StaleError{Address: h.Address, ID: h.ID, Found: chunk.ID}
	}
	return nil
}

// guard makes a fault in f a [shmstore.CorruptError].
func (c chunks) guard(h serde.Address, f func() error) error {
	err := fault.Guard(f)
	if errors.Is(err, fault.ErrFault) {
		return c.corrupt(h, c.seg.Explain(err, c.sidecar))
	}
	return err
}

func (c chunks) corrupt(h serde.Address, err error) error {
	return &shmstore.CorruptError{Segment: c.seg.Name(), Address: h.Address, ID: h.ID, Err: err}
}

// stored reads the object of a handle in the way of a worker.
func (c chunks) stored(key string, h serde.Address) (v serde.Value, err error) {
	err = c.guard(h, func() error { v, err = c.readVerified(key, h); return err })
	return v, err
}
