package objstore

import (
	"bytes"
	"context"
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

func (r *fifoRequest) inChunks() *chunks { return &r.f.chunks }

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
	if o, ok := f.index[key]; ok && f.canUse(o.counts, 1) {
		return &shmstore.KeyError{Key: key, Err: ErrKeyExists}
	}
	return nil
}

func (r *fifoRequest) reserve(key string, plan *serde.Plan, po PutOptions) (*Reservation, error) {
	c, err := r.reserveFilled(key, plan, po)
	if err != nil {
		return nil, err
	}
	res := &fifoReservation{fifoChunk: c}
	return res.begin(&res.fifoChunk, plan), nil
}

func (r *fifoRequest) put(key string, plan *serde.Plan, po PutOptions, n int) (serde.Address, error) {
	c, err := r.reserveFilled(key, plan, po)
	if err != nil {
		return serde.Address{}, err
	}
	h, err := c.commit(n)
	if err != nil {
		c.discard()
	}
	return h, err
}

// fifoReservation is a [Reservation] and its chunk in one piece of memory.
type fifoReservation struct {
	Reservation
	fifoChunk
}

// fifoChunk is a chunk that was taken in a FIFO.
type fifoChunk struct {
	r       *fifoRequest
	o       *fifoObject
	payload []byte
	front   int
	done    bool // guarded by the store's lock
}

// reserveFilled reserves a chunk for a plan, and fills it.
func (r *fifoRequest) reserveFilled(key string, plan *serde.Plan, po PutOptions) (c fifoChunk, err error) {
	if !utf8.ValidString(key) {
		return c, fmt.Errorf("%w: key %q is not UTF-8, so no Python reader can name it", errInvalid, key)
	}
	c = fifoChunk{r: r, o: &fifoObject{key: key, note: bytes.Clone(po.Note)}, front: frontSize(plan)}
	if c.payload, err = r.allocate(c.o, saturate(c.front, plan.DataLen), po.Wait); err != nil {
		return c, err
	}
	front, back := c.parts(plan.DataLen)
	if c.o.signature, err = r.f.chunks.fill(c.o.place(), key, front, back, plan); err != nil {
		c.discard()
	}
	return c, err
}

// allocate allocates the chunk of an object, which becomes pending, and holds the segment.
// With a context it waits for room.
func (r *fifoRequest) allocate(o *fifoObject, size int, wait context.Context) (payload []byte, err error) {
	f := r.f
	f.mu.Lock()
	defer f.unlock()
	if err := r.mayPut(o.key); err != nil {
		return nil, err
	}
	defer func() {
		if err == nil {
			r.pending++
		}
	}()
	if size > f.opt.MaxObjectSize {
		return nil, &shmstore.TooLargeError{Size: size, Limit: f.opt.MaxObjectSize}
	}
	payload, err = f.allocateNow(o, size, line.Passing)
	if wait != nil && errors.Is(err, ErrFull) {
		return r.wait(wait, o, size, err)
	}
	return payload, err
}

// wait waits for room. It is called, and returns, under the store's lock.
func (r *fifoRequest) wait(ctx context.Context, o *fifoObject, size int, full error) (payload []byte, err error) {
	f := r.f
	w := &line.Waiter{Need: fifoExtent(size), Key: o.key}
	if r.waiters == nil {
		r.waiters = map[*line.Waiter]struct{}{}
	}
	r.waiters[w] = struct{}{}
	defer delete(r.waiters, w)
	err = f.waiters.Wait(ctx, &f.mu, w, full, line.Attempt{
		Line:  func(error) *line.Line { return &f.waiters.Main },
		Retry: func(err error) bool { return errors.Is(err, ErrFull) },
		Check: func() error { return r.mayPut(o.key) },
		Try: func(as line.Role) (err error) {
			payload, err = f.allocateNow(o, size, as)
			return err
		},
	})
	return payload, err
}

func (f *FIFO) allocateNow(o *fifoObject, size int, as line.Role) (payload []byte, err error) {
	if err := f.chunks.seg.Hold(); err != nil {
		return nil, err
	}
	if o.address, o.id, payload, err = f.allocate(size, as); err != nil {
		f.chunks.seg.Release()
		return nil, err
	}
	o.size = len(payload) + shmring.HeaderSize
	f.reserve(o)
	return payload, nil
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
	h := o.place()
	err := f.chunks.guard(&h, func() error {
		readCount(c.payload) // is the memory there?
		mem.Fence()          // everything written so far comes before the handle
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
	if err := c.r.lease(o, n); err != nil {
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
	c.r.pending--
	c.r.f.chunks.seg.Release()
	c.r.f.wakeShutdown()
}
