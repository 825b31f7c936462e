package objstore

import (
	"bytes"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/internal/line"
	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmstore"
)

func (r *fifoRequest) Put(key string, v serde.Value, o PutOptions) (serde.Address, error) {
	return putNamed(r, key, v, o)
}

func (r *fifoRequest) Reserve(key string, v serde.Value, o PutOptions) (*Reservation, error) {
	return reserveNamed(r, key, v, o)
}

func (r *fifoRequest) encoding() serde.Options { return r.f.chunks.options }

// mayPut returns what is in the way of an object under a key, besides room.
func (r *fifoRequest) mayPut(key string) error {
	f := r.f
	switch {
	case f.state.Closed:
		return f.closedError()
	case r.state != requestOpen:
		return r.notOpen()
	}
	if _, ok := f.pending[key]; ok {
		return &shmstore.KeyError{Key: key, Err: ErrKeyExists, Reserved: true}
	}
	if o, ok := f.index[key]; ok && f.canTake(o.counts, 1) {
		return &shmstore.KeyError{Key: key, Err: ErrKeyExists}
	}
	return nil
}

func (r *fifoRequest) reserve(key string, plan *serde.Plan, po PutOptions) (*Reservation, error) {
	if !utf8.ValidString(key) {
		return nil, fmt.Errorf("%w: key %q is not UTF-8, so no Python reader can name it", errInvalid, key)
	}
	front := frontSize(plan)
	in := &fifoChunk{r: r, o: &fifoObject{key: key, note: bytes.Clone(po.Note)}, front: front}
	if err := in.allocate(saturate(front, plan.DataLen), po); err != nil {
		return nil, err
	}
	return r.f.chunks.reserve(in, plan)
}

// fifoChunk is a chunk that was taken in a FIFO.
type fifoChunk struct {
	r       *fifoRequest
	o       *fifoObject
	payload []byte
	front   int
	done    bool // guarded by the store's lock
}

// allocate allocates the chunk, which becomes pending, and holds the segment.
func (c *fifoChunk) allocate(size int, po PutOptions) error {
	f, r := c.r.f, c.r
	f.mu.Lock()
	defer f.unlock()
	if err := r.mayPut(c.o.key); err != nil {
		return err
	}
	if size > f.opt.MaxObjectSize {
		return &shmstore.TooLargeError{Size: size, Limit: f.opt.MaxObjectSize}
	}
	err := c.allocateNow(size, line.Passing)
	if po.Wait == nil || !errors.Is(err, ErrFull) {
		return err
	}
	w := &line.Waiter{Need: fifoExtent(size), Key: c.o.key}
	if r.waiters == nil {
		r.waiters = map[*line.Waiter]struct{}{}
	}
	r.waiters[w] = struct{}{}
	defer delete(r.waiters, w)
	return f.waiters.Wait(po.Wait, &f.mu, w, err, line.Attempt{
		Line:  func(error) *line.Line { return &f.waiters.Main },
		Retry: func(err error) bool { return errors.Is(err, ErrFull) },
		Check: func() error { return r.mayPut(c.o.key) },
		Try:   func(as line.Turn) error { return c.allocateNow(size, as) },
	})
}

func (c *fifoChunk) allocateNow(size int, as line.Turn) (err error) {
	f, o := c.r.f, c.o
	if err := f.chunks.seg.Hold(); err != nil {
		return err
	}
	if o.address, o.id, c.payload, err = f.allocate(size, as); err != nil {
		f.chunks.seg.Release()
		return err
	}
	o.size = len(c.payload) + shmring.HeaderSize
	f.reserve(o)
	return nil
}

func (c *fifoChunk) parts(n int) (front, back []byte) {
	return c.payload[:c.front:c.front], c.payload[len(c.payload)-n:]
}

func (c *fifoChunk) place() (address uint64, id uint32) { return c.o.address, c.o.id }

func (*fifoChunk) setCost(time.Duration) {}

func (c *fifoChunk) commit(n int) (serde.Address, error) {
	f, o := c.r.f, c.o
	f.mu.Lock()
	defer f.unlock()
	switch {
	case c.done:
		return serde.Address{}, fmt.Errorf("%w: the reservation of key %q ended already", errInvalid, o.key)
	case f.state.Closed: // abandoned
		c.giveUp()
		return serde.Address{}, f.closedError()
	case c.r.state != requestOpen:
		return serde.Address{}, fmt.Errorf("%w; discard the reservation", c.r.notOpen())
	}
	failpoint.Hit("commit")
	err := f.chunks.guard(f.handle(o), func() error {
		if f.opt.Generation.Signed {
			o.signature = sign(f.chunks.seg.Secret(), o.key, o.address, o.id)
		}
		mem.Fence() // everything written so far comes before the handle
		return nil
	})
	if err != nil {
		c.giveUp()
		return serde.Address{}, err
	}
	if old, ok := f.index[o.key]; ok {
		f.retire(old) // its uses are used up, see mayPut
	}
	f.commit(o)
	f.watch(o, true)
	c.end()
	f.waiters.WakeKey(o.key)
	failpoint.Hit("committed")
	if err := c.r.take(o, n); err != nil {
		f.retire(o) // nobody has a handle
		return serde.Address{}, err
	}
	return f.handle(o), nil
}

func (c *fifoChunk) discard() {
	c.r.f.mu.Lock()
	defer c.r.f.unlock()
	if !c.done {
		c.giveUp()
	}
}

// giveUp leaves a chunk that is freed when it is the oldest.
func (c *fifoChunk) giveUp() {
	c.r.f.fifoTable.discard(c.o)
	if !c.r.f.state.Closed {
		c.r.f.wakeFirst()
	}
	c.end()
}

func (c *fifoChunk) end() {
	c.done = true
	c.r.f.chunks.seg.Release()
	c.r.f.wakeShutdown()
}
