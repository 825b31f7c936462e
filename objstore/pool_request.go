package objstore

import (
	"fmt"
	"time"

	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmstore"
)

// poolRequest is a request of a Pool: one of its store, with handles.
type poolRequest struct {
	*shmstore.Request
	p *Pool
}

// Begin implements [Store].
func (p *Pool) Begin(id string) (Request, error) {
	r, err := p.begin(id)
	if err != nil {
		return nil, err
	}
	return r, nil
}

func (p *Pool) begin(id string) (*poolRequest, error) {
	r, err := p.store.Begin(shmstore.RequestOptions{ID: id})
	return &poolRequest{r, p}, err
}

func (r *poolRequest) Lookup(key string, n int) (Handle, error) {
	if key == "" {
		return Handle{}, errNoKey()
	}
	if n < 0 {
		return Handle{}, fmt.Errorf("%w: %d uses of key %q", ErrInvalid, n, key)
	}
	return r.lookup(key, n)
}

func (r *poolRequest) lookup(key string, n int) (Handle, error) {
	o, err := r.Request.Lookup(key, n)
	if err != nil {
		return Handle{}, err
	}
	return r.p.handle(o), nil
}

func (r *poolRequest) Put(key string, v serde.Value, o PutOptions) (Handle, error) {
	if key == "" {
		return Handle{}, errNoKey()
	}
	return r.put(key, v, o, 1)
}

func (r *poolRequest) put(key string, v serde.Value, o PutOptions, n int) (Handle, error) {
	return put(r, key, v, o, n)
}

func (r *poolRequest) Reserve(key string, v serde.Value, o PutOptions) (*Reservation, error) {
	if key == "" {
		return nil, errNoKey()
	}
	plan, err := r.plan(key, v)
	if err != nil {
		return nil, err
	}
	return r.reserve(key, plan, o)
}

// plan lays the value out. It looks first whether the key may be put, since that can
// take long.
func (r *poolRequest) plan(key string, v serde.Value) (*serde.Plan, error) {
	if err := r.CheckKey(key); err != nil {
		return nil, err
	}
	return serde.NewPlan(v, r.p.chunks.options)
}

func (r *poolRequest) reserve(key string, plan *serde.Plan, o PutOptions) (*Reservation, error) {
	front := frontSize(plan)
	res, err := r.Request.Reserve(key, saturate(front, plan.DataLen()), shmstore.PutOptions{
		Tenant: o.Tenant, Cost: o.Cost, Note: o.Note, Wait: o.Wait, Front: front, AlignAt: largest(plan),
	})
	if err != nil {
		return nil, err
	}
	return r.p.chunks.reserve(poolChunk{res, r.p}, plan)
}

// largest returns where in the data the largest tensor begins, which is to be aligned:
// the data must end the chunk, and its frames touch, so only one can be.
func largest(plan *serde.Plan) int {
	largest := serde.Placement{}
	for _, p := range plan.Tensors() {
		if p.Len > largest.Len {
			largest = p
		}
	}
	return largest.Offset
}

// poolChunk is a chunk that was taken in a Pool.
type poolChunk struct {
	res *shmstore.Reservation
	p   *Pool
}

func (c poolChunk) parts(n int) (front, back []byte) { return c.res.Front(), c.res.Back(n) }
func (c poolChunk) place() (address uint64, id uint32) {
	o := c.res.Object()
	return o.Address(), o.ID()
}
func (c poolChunk) setCost(d time.Duration) { c.res.SetCost(d) }
func (c poolChunk) discard()                { c.res.Discard() }

func (c poolChunk) commit(n int) (Handle, error) {
	o, err := c.res.Commit(n)
	if err != nil {
		return Handle{}, err
	}
	return c.p.handle(o), nil
}

func (r *poolRequest) Note(key string) (note []byte, ok bool) {
	o, err := r.Object(key)
	if err != nil {
		return nil, false
	}
	return o.Note(), true
}

func (r *poolRequest) Stored(key string, h Handle) (serde.Value, error) {
	o, err := r.Object(key)
	if err != nil {
		return nil, err
	}
	if o.Address() != h.Address || o.ID() != h.ID {
		return nil, errNotOurs(r.ID(), key, h)
	}
	if _, err := r.Bytes(o); err != nil { // which keeps the segment mapped
		return nil, err
	}
	return r.p.chunks.stored(r.p.gen, key, h)
}
