package objstore

import (
	"errors"
	"math"

	"github.com/ringcache/ringcache/internal/fault"
	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/segment"
	"github.com/ringcache/ringcache/shmring/sidecar"
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

// segmentView is what a writer and a reader need of a segment to look at
// chunks.
type segmentView struct {
	seg     *segment.Segment
	options serde.Options
	// held says that a reader's slot names the chunk, and that its id was right
	// after that. The writer takes the id away for a moment when it would like to
	// evict the chunk, and gives it back when it sees the hold: no id is as good
	// as the right one then.
	held bool
	// sidecar is a reader's; a writer's is the segment's.
	sidecar *sidecar.File
}

// same says whether the id found at a handle's address is the handle's.
func (s segmentView) same(h Handle, found uint32) bool {
	return found == h.ID || s.held && found == shmring.DeadID
}

// locate returns the chunk of a handle after checking the id. The segment must
// be held.
func (s segmentView) locate(h Handle) (shmring.Chunk, error) {
	c, err := shmring.ReadChunk(s.seg.Ring(), h.Address)
	// An id of 2^31 or more is no id: Python reads it as negative.
	if id, ok := shmring.ChunkID(s.seg.Ring(), h.Address); !ok || !s.same(h, id) || h.ID >= shmring.IDLimit {
		return shmring.Chunk{}, &StaleError{Address: h.Address, ID: h.ID, Found: id}
	}
	if err == nil && len(c.Payload) < countSize {
		err = &shmring.CorruptError{Offset: h.Address, What: "payload size", Got: int64(len(c.Payload)), Want: "4 or more"}
	}
	if err != nil {
		return shmring.Chunk{}, s.corrupt(h, err)
	}
	return c, nil
}

// decode returns the object in a chunk, whose tensors point into it.
func (s segmentView) decode(h Handle, payload []byte) (serde.Value, error) {
	m, data, err := serde.ParsePayload(payload[countSize:])
	if err != nil {
		return nil, s.corrupt(h, err)
	}
	v, err := serde.DecodeValue(m, data, s.options)
	if err != nil {
		return nil, s.corrupt(h, err)
	}
	return v, nil
}

// read locates and decodes, and looks at the id once more: what was decoded
// may have changed meanwhile.
func (s segmentView) read(h Handle) (serde.Value, error) {
	var v serde.Value
	first := s
	first.held = false // which it is only now
	err := s.guard(h, func() error {
		c, err := first.locate(h)
		if err != nil {
			return err
		}
		v, err = s.decode(h, c.Payload)
		if again := s.check(h); again != nil {
			return again
		}
		return err
	})
	return v, err
}

// check compares the id at the handle's address again.
func (s segmentView) check(h Handle) error {
	mem.Fence()
	if id, ok := shmring.ChunkID(s.seg.Ring(), h.Address); !ok || !s.same(h, id) {
		return &StaleError{Address: h.Address, ID: h.ID, Found: id}
	}
	return nil
}

// guard makes a fault in f a [CorruptError].
func (s segmentView) guard(h Handle, f func() error) error {
	err := fault.Guard(f)
	if errors.Is(err, fault.ErrFault) {
		return s.corrupt(h, s.seg.Explain(err, s.sidecar))
	}
	return err
}

func (s segmentView) corrupt(h Handle, err error) error {
	return &CorruptError{Segment: s.seg.Name(), Address: h.Address, ID: h.ID, Err: err}
}
