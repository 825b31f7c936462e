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

// fifoRequest is a request of a FIFO.
type fifoRequest struct {
	f     *FIFO
	id    string
	since time.Time

	// Guarded by the store's lock.
	state   requestState
	leases  map[*fifoObject]fifoLease
	waiters map[*line.Waiter]struct{} // those that wait for room for it
	keeps   bool                      // the segment is mapped until it ends
	sent    bool                      // it was committed
}

// fifoLease is the use of one object by one request.
type fifoLease struct {
	times int   // the request took it
	uses  int64 // that were counted for that
}

type requestState uint8

const (
	requestOpen requestState = iota
	requestCommitted
	requestEnded
)

// Begin implements [Store].
func (f *FIFO) Begin(id string) (Request, error) {
	r, err := f.begin(id)
	if err != nil {
		return nil, err
	}
	return r, nil
}

func (f *FIFO) begin(id string) (*fifoRequest, error) {
	if err := f.lock(); err != nil {
		return nil, err
	}
	defer f.mu.Unlock()
	if f.state.Stopping {
		return nil, fmt.Errorf("%w: %s is shutting down and takes nothing new", ErrClosed, f.Name())
	}
	if _, ok := f.requests[id]; ok {
		return nil, fmt.Errorf("%w: request %q is open already", ErrInvalid, id)
	}
	r := &fifoRequest{f: f, id: id, since: time.Now(), leases: map[*fifoObject]fifoLease{}}
	f.requests[id] = r
	return r, nil
}

func (r *fifoRequest) ID() string { return r.id }

func (r *fifoRequest) Ended() bool {
	r.f.mu.Lock()
	defer r.f.mu.Unlock()
	return r.state == requestEnded
}

// enter takes the store's lock for a request that was not committed.
func (r *fifoRequest) enter() error {
	if err := r.f.lock(); err != nil {
		return err
	}
	if r.state != requestOpen {
		err := r.notOpen()
		r.f.mu.Unlock()
		return err
	}
	return nil
}

// notOpen returns why the request takes nothing more.
func (r *fifoRequest) notOpen() error {
	if r.state == requestCommitted {
		return fmt.Errorf("%w: %s was committed, so its handles may be with the engine; begin another request", ErrEnded, r.id)
	}
	return fmt.Errorf("%w: %s was finished, aborted or rolled back, or its readers were reset", ErrEnded, r.id)
}

// become enters the next state, in which nobody waits for room.
func (r *fifoRequest) become(state requestState) {
	r.state = state
	for w := range r.waiters {
		r.f.waiters.Wake(w)
	}
	if state == requestEnded {
		delete(r.f.requests, r.id)
	}
}

func (r *fifoRequest) Lookup(key string) (Handle, error) {
	if key == "" {
		return Handle{}, errNoKey()
	}
	return r.lookup(key, 1)
}

func (r *fifoRequest) lookup(key string, n int) (Handle, error) {
	h, _, err := r.find(key, n)
	return h, err
}

func (r *fifoRequest) Keep(key string) (h Handle, note []byte, err error) {
	if key == "" {
		return Handle{}, nil, errNoKey()
	}
	return r.find(key, 0)
}

// find leases the object under a key, and counts n uses.
func (r *fifoRequest) find(key string, n int) (h Handle, note []byte, err error) {
	if err := r.enter(); err != nil {
		return Handle{}, nil, err
	}
	defer r.f.mu.Unlock()
	o, err := r.f.find(key)
	if err != nil {
		return Handle{}, nil, err
	}
	if err := r.take(o, n); err != nil {
		return Handle{}, nil, err
	}
	return r.f.handle(o), o.note, nil
}

// take counts n more uses of an object by the request, which leases it.
func (r *fifoRequest) take(o *fifoObject, n int) (err error) {
	l, held := r.leases[o]
	var uses int64
	if n != 0 {
		if uses, err = r.f.take(&o.counts, o.key, n); err != nil {
			return err
		}
	}
	if !held {
		o.leases++
		r.f.leases++
	}
	r.leases[o] = fifoLease{l.times + n, l.uses + uses}
	return nil
}

// object returns the object of a handle that the request has.
func (r *fifoRequest) object(h Handle) (*fifoObject, error) {
	o := r.f.objects[h.ID]
	if _, ok := r.leases[o]; !ok || o.address != h.Address {
		return nil, errNotOurs(r.id, h)
	}
	return o, nil
}

func (r *fifoRequest) SetUses(h Handle, n int) error {
	if err := r.enter(); err != nil {
		return err
	}
	defer r.f.mu.Unlock()
	o, err := r.object(h)
	if err != nil {
		return err
	}
	l := r.leases[o]
	switch {
	case n < 0:
		return fmt.Errorf("%w: %d uses of key %q", ErrInvalid, n, o.key)
	case n < l.times:
		r.f.takeBack(&o.counts, l.times, l.uses)
		l = fifoLease{}
		r.leases[o] = l
	}
	if n == l.times {
		return nil
	}
	return r.take(o, n-l.times)
}

func (r *fifoRequest) Stored(h Handle) (serde.Value, error) {
	key, err := r.keepMapped(h)
	if err != nil {
		return nil, err
	}
	return r.f.chunks.stored(r.f.gen, key, h)
}

// keepMapped keeps the segment mapped until the request is ended, and returns the key of
// a handle that it has.
func (r *fifoRequest) keepMapped(h Handle) (key string, err error) {
	if err := r.f.lock(); err != nil {
		return "", err
	}
	defer r.f.mu.Unlock()
	if r.state == requestEnded {
		return "", r.notOpen()
	}
	o, err := r.object(h)
	if err != nil {
		return "", err
	}
	if !r.keeps {
		if err := r.f.chunks.seg.Hold(); err != nil {
			return "", err
		}
		r.keeps = true
		r.f.kept++
	}
	return o.key, nil
}

func (r *fifoRequest) Drop(key string) {
	if r.enter() != nil {
		return
	}
	defer r.f.mu.Unlock()
	for o := range r.leases {
		if o.key == key {
			r.letGo(o, false)
			delete(r.leases, o)
		}
	}
	r.f.wakeFirst()
	r.f.wakeShutdown()
}

func (r *fifoRequest) Commit() error {
	if err := r.enter(); err != nil {
		return err
	}
	defer r.f.mu.Unlock()
	r.become(requestCommitted)
	r.sent = true
	for o, l := range r.leases {
		o.sent++
		o.counts.sent(l.uses)
	}
	return nil
}

func (r *fifoRequest) Rollback() { r.end(requestOpen) }
func (r *fifoRequest) Finish()   { r.end(requestCommitted) }

// Abort: whatever is still to be read, the counts tell.
func (r *fifoRequest) Abort() { r.end(requestCommitted) }

func (r *fifoRequest) end(from requestState) {
	f := r.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.state == requestOpen && from == requestCommitted && !f.state.Closed {
		f.misused++
	}
	if r.state == from && !f.state.Closed {
		r.become(requestEnded)
		for o := range r.leases {
			r.letGo(o, from == requestCommitted)
		}
		r.leases = nil
		f.wakeFirst()
	}
	// A Rollback that comes after Commit is deferred, and does not end it.
	if r.keeps && r.state == requestEnded && (from == requestCommitted || !r.sent) {
		r.keeps = false
		f.kept--
		f.chunks.seg.Release()
	}
	f.wakeShutdown()
}

// letGo ends the lease of one object.
func (r *fifoRequest) letGo(o *fifoObject, committed bool) {
	o.leases--
	r.f.leases--
	if l := r.leases[o]; committed {
		o.sent--
	} else if l.times != 0 {
		r.f.takeBack(&o.counts, l.times, l.uses)
	}
}

func (r *fifoRequest) Put(key string, v serde.Value, o PutOptions) (Handle, error) {
	return putNamed(r, key, v, o)
}

func (r *fifoRequest) Reserve(key string, v serde.Value, o PutOptions) (*Reservation, error) {
	return reserveNamed(r, key, v, o)
}

// plan lays the value out. It looks first whether the key may be put, since that can
// take long.
func (r *fifoRequest) plan(key string, v serde.Value) (*serde.Plan, error) {
	if !utf8.ValidString(key) {
		return nil, fmt.Errorf("%w: key %q is not UTF-8, so no Python reader can name it", ErrInvalid, key)
	}
	if err := r.checkPut(key); err != nil {
		return nil, err
	}
	return serde.NewPlan(v, r.f.chunks.options)
}

func (r *fifoRequest) checkPut(key string) error {
	r.f.mu.Lock()
	defer r.f.mu.Unlock()
	return r.mayPut(key)
}

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
		return &shmstore.KeyExistsError{Key: key, Reserved: true}
	}
	if o, ok := f.index[key]; ok && f.canTake(o.counts, 1) {
		return &shmstore.KeyExistsError{Key: key}
	}
	return nil
}

func (r *fifoRequest) reserve(key string, plan *serde.Plan, po PutOptions) (*Reservation, error) {
	front := frontSize(plan)
	if plan.DataLen > r.f.opt.MaxObjectSize-front {
		return nil, &shmstore.TooLargeError{Size: saturate(plan.DataLen, front), Limit: r.f.opt.MaxObjectSize}
	}
	in := &fifoChunk{r: r, o: &fifoObject{key: key, note: bytes.Clone(po.Note)}, front: front}
	if err := in.allocate(front+plan.DataLen, po); err != nil {
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
	defer f.mu.Unlock()
	if err := r.mayPut(c.o.key); err != nil {
		return err
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
	f.objects[o.id] = o
	f.pending[o.key] = o
	return nil
}

func (c *fifoChunk) parts(n int) (front, back []byte) {
	return c.payload[:c.front:c.front], c.payload[len(c.payload)-n:]
}
func (c *fifoChunk) place() (address uint64, id uint32) { return c.o.address, c.o.id }
func (*fifoChunk) setCost(time.Duration)                {}

func (c *fifoChunk) commit(n int) (Handle, error) {
	f, o := c.r.f, c.o
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case c.done:
		return Handle{}, fmt.Errorf("%w: the reservation of key %q ended already", ErrInvalid, o.key)
	case f.state.Closed: // abandoned
		c.giveUp()
		return Handle{}, f.closedError()
	case c.r.state != requestOpen:
		return Handle{}, fmt.Errorf("%w; discard the reservation", c.r.notOpen())
	}
	failpoint.Hit("commit")
	err := f.chunks.guard(f.handle(o), func() error {
		if f.gen.Signed {
			o.signature = sign(f.chunks.seg.Secret(), o.key, o.address, o.id)
		}
		mem.Fence() // everything written so far comes before the handle
		return nil
	})
	if err != nil {
		c.giveUp()
		return Handle{}, err
	}
	o.state = fifoCommitted
	if old, ok := f.index[o.key]; ok {
		f.retire(old) // its uses are used up, see mayPut
	}
	f.index[o.key] = o
	f.watch(o, true)
	c.end()
	f.waiters.WakeKey(o.key)
	failpoint.Hit("committed")
	if err := c.r.take(o, n); err != nil {
		f.retire(o) // nobody has a handle
		return Handle{}, err
	}
	return f.handle(o), nil
}

func (c *fifoChunk) discard() {
	c.r.f.mu.Lock()
	defer c.r.f.mu.Unlock()
	if !c.done {
		c.giveUp()
	}
}

// giveUp leaves a chunk that is freed when it is the oldest.
func (c *fifoChunk) giveUp() {
	c.o.state = fifoDiscarded
	if !c.r.f.state.Closed {
		c.r.f.wakeFirst()
	}
	c.end()
}

func (c *fifoChunk) end() {
	c.done = true
	delete(c.r.f.pending, c.o.key)
	c.r.f.chunks.seg.Release()
	c.r.f.wakeShutdown()
}
