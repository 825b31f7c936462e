package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"os"

	"golang.org/x/sys/unix"

	"github.com/ringcache/ringcache/pin/cuda"
	"github.com/ringcache/ringcache/shmring/memory"
	"github.com/ringcache/ringcache/shmring/segment"
)

// ring is a segment of random bytes that this process maps twice: one mapping is registered with the
// driver, as a reader's is; the other is not, as a writer's is.
type ring struct {
	writer *segment.Segment
	reader *segment.Segment
	pin    *segment.Pin
}

func newRing(ctx context.Context, d *cuda.Driver, size int) (_ *ring, err error) {
	if err := room(size); err != nil {
		return nil, err
	}
	r := &ring{}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	o := segment.Options{Name: fmt.Sprintf("%s%d-%s", filePrefix, os.Getpid(), rand.Text()[:6]), RingSize: size}
	if r.writer, err = segment.Create(o); err != nil {
		return nil, err
	}
	var seed [32]byte
	_, _ = rand.Read(seed[:])
	_, _ = mrand.NewChaCha8(seed).Read(r.writer.Bytes())
	if r.reader, err = segment.Attach(o); err != nil {
		return nil, err
	}
	for _, s := range []*segment.Segment{r.writer, r.reader} {
		if _, err := s.Prepare(ctx, memory.Options{Prefault: true, Require: true}); err != nil {
			return nil, err
		}
	}
	r.pin, err = r.reader.Pin(ctx, d, segment.PinOptions{Require: true})
	return r, err
}

func (r *ring) close() (err error) {
	if r.reader != nil {
		err = r.reader.Close() // unregisters first
	}
	if r.writer != nil {
		err = errors.Join(err, r.writer.Destroy())
	}
	return err
}

// slots cuts memory into places for payloads of one size. Every place begins at a page.
type slots struct{ size, stride, count int }

func slotsOf(bytes, size int) slots {
	const page = 4096
	stride := (size + maxOffset + page - 1) / page * page
	return slots{size, stride, bytes / stride}
}

// at returns the i-th payload; after the last slot comes the first.
func (s slots) at(m []byte, offset, i int) []byte {
	begin := i%s.count*s.stride + offset
	return m[begin : begin+s.size : begin+s.size]
}

// maxOffset is above the largest payload offset that is measured.
const maxOffset = 64

// ringSize returns the size of a ring with slots of at least the given bytes, and four at least of the
// largest.
func ringSize(bytes, largest int) int {
	s := slotsOf(0, largest)
	return max(4, (bytes+largest-1)/largest) * s.stride
}

// anonymous maps private memory that Go's collector does not know, which asynchronous copies need.
func anonymous(size int) ([]byte, error) {
	return unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
}

// path returns the file of the ring.
func (r *ring) path() string { return sharedMemoryDir + "/" + r.writer.Name() }
