package objstore

import (
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmstore"
)

func (r *poolRequest) Put(key string, v serde.Value, o PutOptions) (serde.Address, error) {
	return putNamed(r, key, v, o)
}

func (r *poolRequest) Reserve(key string, v serde.Value, o PutOptions) (*Reservation, error) {
	return reserveNamed(r, key, v, o)
}

func (r *poolRequest) inChunks() *chunks { return &r.p.chunks }

func (r *poolRequest) reserve(key string, plan *serde.Plan, o PutOptions) (*Reservation, error) {
	c, err := r.reserveFilled(key, plan, o)
	if err != nil {
		return nil, err
	}
	res := &poolReservation{poolChunk: c}
	return res.begin(&res.poolChunk, plan), nil
}

func (r *poolRequest) put(key string, plan *serde.Plan, o PutOptions, n int) (serde.Address, error) {
	c, err := r.reserveFilled(key, plan, o)
	if err != nil {
		return serde.Address{}, err
	}
	h, err := c.commit(n)
	if err != nil {
		c.discard()
	}
	return h, err
}

// reserveFilled reserves a chunk for a plan, and fills it.
func (r *poolRequest) reserveFilled(key string, plan *serde.Plan, o PutOptions) (c poolChunk, err error) {
	if !utf8.ValidString(key) {
		return c, fmt.Errorf("%w: key %q is not UTF-8", errInvalid, key)
	}
	front := frontSize(plan)
	res, err := r.Request.Reserve(key, saturate(front, plan.DataLen), shmstore.PutOptions{
		Tenant: o.Tenant, Note: o.Note, Wait: o.Wait, Front: front, AlignAt: largest(plan),
	})
	if err != nil {
		return c, err
	}
	c = poolChunk{res, r.p, front}
	head, back := c.parts(plan.DataLen)
	if record(res.Object()).signature, err = r.p.chunks.fill(r.p.place(res.Object()), key, head, back,
		plan); err != nil {
		c.discard()
	}
	return c, err
}

// largest returns where in the data the largest tensor begins, which is to be aligned:
// the data must end the chunk, and its frames touch, so only one can be.
func largest(plan *serde.Plan) int {
	largest := serde.Placement{}
	for _, p := range plan.Tensors {
		if p.Len > largest.Len {
			largest = p
		}
	}
	return largest.Offset
}

// poolReservation is a [Reservation] and its chunk in one piece of memory.
type poolReservation struct {
	Reservation
	poolChunk
}

// poolChunk is a chunk that was taken in a pool.
type poolChunk struct {
	res   *shmstore.Reservation
	p     *Pool
	front int // bytes of the payload in front of the data
}

func (c poolChunk) parts(n int) (front, back []byte) {
	b := c.res.Bytes()
	return b[:c.front:c.front], b[len(b)-n:]
}

func (c poolChunk) place() (address uint64, id uint32) {
	h := c.p.place(c.res.Object())
	return h.Address, h.ID
}

func (c poolChunk) setCost(d time.Duration) { c.res.SetCost(d) }

func (c poolChunk) discard() { c.res.Discard() }

func (c poolChunk) commit(n int) (serde.Address, error) {
	o, err := c.res.Commit(n)
	if err != nil {
		return serde.Address{}, err
	}
	return c.p.handle(o), nil
}
