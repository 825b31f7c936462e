package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/serde"
)

// Names of our columns.
const (
	oursPool   = "ringcache Pool"
	oursFIFO   = "ringcache FIFO"
	oursFirst  = "ringcache, first look"
	oursSeen   = "ringcache, seen"
	oursPython = "ringcache, Python"
)

// store is a store of ours on a segment of its own, as the vLLM peer makes its own, and what every job
// with a store does.
type store struct {
	objstore.Store
	policy string
	again  objstore.Request // of begin; nil before the first
	item   *serde.Item
	frame  []byte             // the last address item
	made   int                // keys so far
	named  []name             // those that are next
	sent   []objstore.Request // of sendNew
	unread []serde.Address    // handles whose reads settle counts
}

// names are counted, so that the segments of one process differ.
var names atomic.Int64

func segmentName() string { return fmt.Sprintf("ringcache-compare-%d-%d", os.Getpid(), names.Add(1)) }

func (s *store) open(size int, o objstore.Options) (err error) {
	o.Name, o.MaxObjectSize, o.Readers, o.TrustCounts = segmentName(), size+slack, 1, true
	if s.policy == oursFIFO {
		s.Store, err = objstore.CreateFIFO(o)
	} else {
		s.Store, err = objstore.CreatePool(o)
	}
	if err != nil {
		s.Store = nil
		return err
	}
	s.item = qwenItem(size)
	return nil
}

func (s *store) Close() error {
	if s.Store == nil {
		return nil
	}
	return s.Abandon()
}

// begin begins a request in the memory of the one before, which has ended.
func (s *store) begin(id string) (r objstore.Request, err error) {
	if s.again == nil {
		s.again, err = s.Begin(id)
		return s.again, err
	}
	return s.again, s.again.Begin(id)
}

// fill does put until the ring is full, so that every later put evicts.
func (s *store) fill(c Case, put func() error) error {
	_, err := timed(fills(c), put, s.settle)
	return err
}

// fills is the puts that fill a ring, with some to spare.
func fills(c Case) int { return c.RingBytes/c.Size + 16 }

// settle counts the reads of the only reader, as that would: a FIFO frees nothing without. It also makes the
// next keys, so that jobs need not do so within the clock.
func (s *store) settle() error {
	ring := s.Segment().Ring()
	for _, h := range s.unread {
		counter := ring[int(h.Address%uint64(len(ring)))+8:]
		binary.LittleEndian.PutUint32(counter, binary.LittleEndian.Uint32(counter)+1)
	}
	s.unread = s.unread[:0]
	s.nameNext()
	return nil
}

// name is a new key, and the id of a request for it.
type name struct{ key, id string }

func (s *store) nameNext() {
	s.named = s.named[:0]
	for range batch {
		s.made++
		s.named = append(s.named, name{keyOf(s.made), requestID(s.made)})
	}
}

// nextKey returns a new key, and a request id for it.
func (s *store) nextKey() (key, id string) {
	if len(s.named) == 0 {
		s.nameNext()
	}
	n := s.named[len(s.named)-1]
	s.named = s.named[:len(s.named)-1]
	return n.key, n.id
}

const (
	kib = 1 << 10
	mib = 1 << 20
	// slack is the room for the counter, the metadata and the main document of an item.
	slack = 4096
	// batch is the puts between two moments at which all reads are counted: half of the smallest ring.
	batch = 4
)

// timed runs work n times, in batches behind each of which settle is called outside of the clock, and returns
// the mean time of one.
func timed(n int, work, settle func() error) ([]float64, error) {
	var spent time.Duration
	for left := n; left > 0; left -= batch {
		count := min(left, batch)
		began := time.Now()
		for range count {
			if err := work(); err != nil {
				return nil, err
			}
		}
		spent += time.Since(began)
		if err := settle(); err != nil {
			return nil, err
		}
	}
	return []float64{float64(spent) / float64(n)}, nil
}

// timedEach is timed, but returns the time of each.
func timedEach(n int, work, settle func() error) ([]float64, error) {
	times := make([]float64, 0, n)
	for range n {
		began := time.Now()
		err := work()
		times = append(times, float64(time.Since(began)))
		if err := errors.Join(err, settle()); err != nil {
			return nil, err
		}
	}
	return times, nil
}

// keyOf returns the i-th key: 64 hexadecimal digits, as vLLM's hash of an item has.
func keyOf(i int) string {
	const zeros = "0000000000000000000000000000000000000000000000000000000000000000"
	s := strconv.FormatUint(uint64(i)*0x9E3779B97F4A7C15, 16)
	return zeros[:64-len(s)] + s
}

func requestID(i int) string { return "chatcmpl-" + keyOf(i)[48:] }
