package objstore

import (
	"errors"
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

func (r *poolRequest) Lookup(key string) (Handle, error) {
	if key == "" {
		return Handle{}, errNoKey()
	}
	return r.lookup(key, 1)
}

func (r *poolRequest) lookup(key string, n int) (Handle, error) {
	o, err := r.Request.Lookup(key, n)
	if err != nil {
		return Handle{}, err
	}
	return r.p.handle(o), nil
}

func (r *poolRequest) Keep(key string) (h Handle, note []byte, err error) {
	if key == "" {
		return Handle{}, nil, errNoKey()
	}
	o, err := r.Request.Lookup(key, 0)
	if err != nil {
		return Handle{}, nil, err
	}
	return r.p.handle(o), o.Note(), nil
}

// object returns the object of a handle that the request has.
func (r *poolRequest) object(h Handle) (*shmstore.Object, error) {
	o, err := r.Object(h.ID)
	if err == nil && o.Address() == h.Address {
		return o, nil
	}
	if err == nil || errors.Is(err, ErrInvalid) {
		err = errNotOurs(r.ID(), h)
	}
	return nil, err
}

func (r *poolRequest) SetUses(h Handle, n int) error {
	o, err := r.object(h)
	if err != nil {
		return err
	}
	return r.Request.SetUses(o, n)
}

func (r *poolRequest) Stored(h Handle) (serde.Value, error) {
	o, err := r.object(h)
	if err != nil {
		return nil, err
	}
	if _, err := r.Bytes(o); err != nil { // which keeps the segment mapped
		return nil, err
	}
	return r.p.chunks.stored(r.p.gen, o.Key(), h)
}

func (r *poolRequest) Put(key string, v serde.Value, o PutOptions) (Handle, error) {
	return putNamed(r, key, v, o)
}

func (r *poolRequest) Reserve(key string, v serde.Value, o PutOptions) (*Reservation, error) {
	return reserveNamed(r, key, v, o)
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
	res, err := r.Request.Reserve(key, saturate(front, plan.DataLen), shmstore.PutOptions{
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
	for _, p := range plan.Tensors {
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
