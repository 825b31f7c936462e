package objstore

import (
	"errors"
	"math"
	"sync"

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
	// sidecar is a reader's; a writer's is the segment's.
	sidecar *sidecar.File
	signer  signer
	plans   sync.Pool // of *serde.Plan, for values that are put
}

// same reports whether the id found at a handle's address is the handle's.
//
// held reports that a reader's slot names the chunk, and that its id was right
// after that. The writer takes the id away for a moment when it would like to
// evict the chunk, and gives it back when it sees the hold: no id is as good
// as the right one then.
func same(h *serde.Address, found uint32, held bool) bool {
	return found == h.ID || held && found == shmring.DeadID
}

// locate returns the chunk of a handle after checking the id. The segment must
// be held.
func (c *chunks) locate(h *serde.Address, held bool) (shmring.Chunk, error) {
	chunk, err := shmring.ReadChunk(c.seg.Ring(), h.Address)
	// An id of 2^31 or more is no id: Python reads it as negative.
	if !same(h, chunk.ID, held) || h.ID >= shmring.IDLimit {
		return shmring.Chunk{}, &StaleError{Address: h.Address, ID: h.ID, Found: chunk.ID}
	}
	if err == nil && len(chunk.Payload) < countSize {
		err = &shmring.CorruptError{
			Offset: h.Address, What: "payload size", Got: int64(len(chunk.Payload)), Want: "4 or more",
		}
	}
	if err != nil {
		return shmring.Chunk{}, c.corrupt(h, err)
	}
	return chunk, nil
}

// decode returns the object in a chunk, whose tensors point into data.
func (c *chunks) decode(h *serde.Address, payload []byte) (v serde.Value, data []byte, err error) {
	m, data, err := serde.ParsePayload(payload[countSize:])
	if err == nil {
		v, err = serde.DecodeValue(m, data, c.options)
	}
	if err != nil {
		return nil, nil, c.corrupt(h, err)
	}
	return v, data, nil
}

// read locates and decodes, and looks at the id once more: what was decoded
// may have changed meanwhile. It is called in a guard.
func (c *chunks) read(h *serde.Address) (v serde.Value, data []byte, err error) {
	chunk, err := c.locate(h, false)
	if err != nil {
		return nil, nil, err
	}
	v, data, err = c.decode(h, chunk.Payload)
	if again := c.check(h, false); again != nil {
		return nil, nil, again
	}
	return v, data, err
}

// verify checks the signature of a handle for a key, in generations with signatures. It
// is called in a guard.
func (c *chunks) verify(key string, h *serde.Address) error {
	if !c.options.Generation.Signed {
		return nil
	}
	return verifySignature(c.sign(key, h.Address, h.ID), key, h)
}

// check compares the id at the handle's address again. It is called in a guard.
func (c *chunks) check(h *serde.Address, held bool) error {
	mem.Fence()
	if chunk, _ := shmring.ReadChunk(c.seg.Ring(), h.Address); !same(h, chunk.ID, held) {
		return &StaleError{Address: h.Address, ID: h.ID, Found: chunk.ID}
	}
	return nil
}

// guard makes a fault in f a [shmstore.CorruptError].
func (c *chunks) guard(h *serde.Address, f func() error) error {
	err := fault.Guard(f)
	if errors.Is(err, fault.ErrFault) {
		return c.corrupt(h, sidecar.Explain(c.seg, err, c.sidecar))
	}
	return err
}

func (c *chunks) corrupt(h *serde.Address, err error) error {
	return &shmstore.CorruptError{Segment: c.seg.Name(), Address: h.Address, ID: h.ID, Err: err}
}

// stored reads the object of a handle in the way of a worker.
func (c *chunks) stored(key string, h serde.Address) (v serde.Value, err error) {
	err = c.guard(&h, func() error {
		if err := c.verify(key, &h); err != nil {
			return err
		}
		v, _, err = c.read(&h)
		return err
	})
	return v, err
}
