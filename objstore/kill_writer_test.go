package objstore

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmstore"
)

// killWriter is a writer that does anything that writers do, until it is killed.
// It prints, a line each:
//
//	A kept dropped in-use clean epoch   it has adopted, and this is the index:
//	I key id
//	+ key id                            a key has come
//	- key id                            a key is gone
//	P request new handle                a handle was issued; request - is nobody
//	S request                           its handles are sent
//	R request                           its handles will be read and counted
//	X request finish|abort|rollback     it will end
//	F n                                 fence n was taken
//	Q n                                 fence n will pass
//	Z                                   the readers will be reset
//	E text                              something is wrong
//
// What begins to be allowed is said before, what begins to be promised after.
type killWriter struct {
	o            killOrder
	rng          *rand.Rand
	w            *writer
	counts, look *Reader
	adopting     bool
	names        int
	requests     map[string]*killRequest
	reservations []*killReservation
	fences       []shmstore.Fence
	fenced       int
}

type killRequest struct {
	Request
	sent    bool
	handles []killHandle
}

type killReservation struct {
	*Reservation
	request string
	data    []byte
	h       killHandle
}

// killOps is far more than any nth hit takes.
const killOps = 50_000

func writerChild(o killOrder) error {
	c := &killWriter{o: o, rng: rand.New(rand.NewPCG(o.Seed, 1)), requests: map[string]*killRequest{}}
	if err := c.adopt(); err != nil {
		return err
	}
	clears := 1 // rarely, so that the segment is full most of the time
	if strings.HasPrefix(o.Place, "pool.clear") {
		clears = 50
	}
	ops := []struct {
		weight int
		f      func() error
	}{
		{100, c.begin}, {300, c.put}, {200, c.reserve}, {150, c.commit}, {200, c.lookup}, {80, c.send}, {120, c.end},
		{40, c.evict}, {30, c.retire}, {30, c.fence}, {20, c.pass}, {4, c.reset}, {6, c.restart}, {1, c.freeUnused}, {clears, c.clear},
	}
	sum := 0
	for _, op := range ops {
		sum += op.weight
	}
	for i := 0; i < killOps && (o.Ops == 0 || i < o.Ops); i++ {
		n, k := c.rng.IntN(sum), 0
		for n >= ops[k].weight {
			n -= ops[k].weight
			k++
		}
		if err := ops[k].f(); err != nil {
			return err
		}
	}
	if o.Ops == 0 {
		return fmt.Errorf("never came to %s for the %d. time", o.Place, o.Nth)
	}
	return errors.Join(c.clear(), c.detach())
}

func (c *killWriter) adopt() error {
	o := killOptions(c.o.Name, c.o.Rereads)
	o.Watch = func(ch shmstore.Change) {
		switch {
		case c.adopting: // what is found then is printed after
		case ch.Present:
			say("+ %s %d", ch.Key, ch.ID)
		default:
			say("- %s %d", ch.Key, ch.ID)
		}
	}
	c.adopting = true
	w, a, err := adoptPool(o)
	c.adopting = false
	if err != nil {
		return err
	}
	c.w, c.fences, c.fenced = w, nil, 0
	if c.look == nil {
		if c.look, err = Open(o.Name, killReaderOptions(false)); err != nil {
			return err
		}
		if c.counts, err = Open(o.Name, killReaderOptions(true)); err != nil {
			return err
		}
	}
	index, err := checkAdopted(w, c.look)
	if err != nil {
		return err
	}
	say("A %d %d %d %v %d %d", a.Kept, a.Dropped, a.InUse, a.Clean, a.Epoch, len(index))
	for _, k := range slices.Sorted(maps.Keys(index)) {
		say("I %s %d", k, index[k])
	}
	return nil
}

func (c *killWriter) key() string { return fmt.Sprintf("k%d", c.rng.IntN(300)) }

// size is from 1 to 64 KiB, as many small as large.
func (c *killWriter) size() int { return int(math.Exp2(c.rng.Float64() * 16)) }

// request picks one that is open and was not sent, or none.
func (c *killWriter) request() (string, *killRequest) {
	for name, r := range c.requests {
		if !r.sent {
			return name, r
		}
	}
	return "-", nil
}

func (c *killWriter) begin() error {
	if len(c.requests) >= 6 {
		return c.end()
	}
	c.names++
	name := fmt.Sprintf("r%d", c.names)
	r, err := c.w.Begin(name)
	c.requests[name] = &killRequest{Request: r}
	return err
}

func (c *killWriter) issued(name string, isNew bool, h killHandle) {
	if r := c.requests[name]; r != nil {
		r.handles = append(r.handles, h)
	}
	say("P %s %v %v", name, isNew, h)
}

// blocked makes room now and then if what is in the way is in use.
func (c *killWriter) blocked(err error) error {
	if errors.Is(err, ErrFull) {
		if c.rng.IntN(3) > 0 {
			return c.end()
		}
		if err := c.fence(); err != nil {
			return err
		}
		return c.pass()
	}
	if errors.Is(err, ErrKeyExists) || errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

func (c *killWriter) next(n int) killHandle {
	return killHandle{key: c.key(), nonce: c.rng.Uint64(), n: n}
}

func (c *killWriter) put() (err error) {
	h := c.next(c.size())
	o := PutOptions{Note: killNote(h.nonce, h.n)}
	name, r := c.request()
	if r == nil && c.rng.IntN(4) > 0 {
		return c.begin()
	}
	put := c.w.steps.Put
	if r != nil {
		put = r.Put
	}
	if h.h, err = put(h.key, killItem(h.n, h.bytes()), o); err != nil {
		return c.blocked(err)
	}
	c.issued(name, true, h)
	return nil
}

func (c *killWriter) reserve() error {
	if len(c.reservations) >= 3 {
		return c.commit()
	}
	h := c.next(c.size())
	o := PutOptions{Note: killNote(h.nonce, h.n)}
	name, r := c.request()
	reserve := c.w.steps.Reserve
	if r != nil {
		reserve = r.Reserve
	}
	res, err := reserve(h.key, killItem(h.n, nil), o)
	if err != nil {
		return c.blocked(err)
	}
	c.reservations = append(c.reservations, &killReservation{res, name, h.bytes(), h})
	return nil
}

// commit fills and ends the oldest reservation.
func (c *killWriter) commit() (err error) {
	if len(c.reservations) == 0 {
		return nil
	}
	r := c.reservations[0]
	c.reservations = c.reservations[1:]
	for _, b := range r.Tensors() {
		r.data = r.data[copy(b, r.data):]
	}
	if c.rng.IntN(8) == 0 {
		r.Discard()
		return nil
	}
	if r.h.h, err = r.Commit(); err != nil {
		r.Discard()
		if errors.Is(err, ErrEnded) { // with its request
			return nil
		}
		return err
	}
	c.issued(r.request, true, r.h)
	return nil
}

func (c *killWriter) lookup() error {
	name, r := c.request()
	key := c.key()
	var h serde.Address
	var err error
	if r != nil {
		h, err = r.Lookup(key)
	} else if h, err = c.w.Lookup(key); err != nil {
		return c.blocked(err)
	}
	if err != nil {
		return c.blocked(err)
	}
	all, _, err := killObjects(c.w)
	kh := all[h.ID]
	kh.h = h
	c.issued(name, false, kh)
	return err
}

func (c *killWriter) send() error {
	name, r := c.request()
	if r == nil {
		return nil
	}
	r.sent = true
	err := r.Commit()
	say("S %s", name)
	return err
}

// end ends one request in one of the ways that it can.
func (c *killWriter) end() error {
	for name, r := range c.requests {
		return c.endOne(name, r)
	}
	return nil
}

func (c *killWriter) endOne(name string, r *killRequest) error {
	delete(c.requests, name)
	if !r.sent {
		say("X %s rollback", name)
		r.Rollback()
		return nil
	}
	if c.rng.IntN(3) > 0 {
		say("R %s", name)
		for _, h := range r.handles {
			if err := h.look(c.counts); err != nil {
				return fmt.Errorf("handle of an open request: %w", err)
			}
		}
	}
	if c.rng.IntN(3) == 0 {
		say("X %s abort", name)
		r.Abort()
		return nil
	}
	say("X %s finish", name)
	r.Finish()
	return nil
}

func (c *killWriter) evict() error {
	_, err := c.w.Evict(c.key())
	return err
}

func (c *killWriter) retire() error {
	c.w.Remove(c.key())
	return nil
}

func (c *killWriter) freeUnused() error {
	_, err := c.w.FreeUnused()
	return err
}

func (c *killWriter) fence() error {
	c.fences = append(c.fences, c.w.Fence())
	say("F %d", c.fenced+len(c.fences)-1)
	return nil
}

func (c *killWriter) pass() error {
	if len(c.fences) == 0 {
		return nil
	}
	say("Q %d", c.fenced)
	c.fences[0].Passed()
	c.fences = c.fences[1:]
	c.fenced++
	return nil
}

func (c *killWriter) reset() error {
	say("Z")
	maps.DeleteFunc(c.requests, func(_ string, r *killRequest) bool { return r.sent })
	return c.w.ResetReaders(0)
}

// idle ends what blocks Clear and Detach.
func (c *killWriter) idle() error {
	for _, r := range c.reservations {
		r.Discard()
	}
	c.reservations = nil
	for len(c.requests) > 0 {
		if err := c.end(); err != nil {
			return err
		}
	}
	return nil
}

func (c *killWriter) clear() error {
	if err := c.idle(); err != nil {
		return err
	}
	return c.w.Clear()
}

func (c *killWriter) detach() error {
	if err := c.idle(); err != nil {
		return err
	}
	if err := c.w.CheckStructure(); err != nil {
		return err
	}
	say("D")
	return c.w.Detach()
}

func (c *killWriter) restart() error {
	if err := c.detach(); err != nil {
		return err
	}
	return c.adopt()
}
