package objstore

import (
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmstore"
)

// poolRequest is a request of a pool: one of its store, with handles.
type poolRequest struct {
	shmstore.Request
	p  *Pool
	id string
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
	r := &poolRequest{p: p}
	if err := r.Begin(id); err != nil {
		return nil, err
	}
	return r, nil
}

// Begin implements [Request].
func (r *poolRequest) Begin(id string) error {
	if err := r.Request.BeginIn(r.p.bytesStore, shmstore.RequestOptions{ID: id}); err != nil {
		return err
	}
	r.id = id
	return nil
}

// ID implements [Request].
func (r *poolRequest) ID() string { return r.id }

func (r *poolRequest) Lookup(key string) (serde.Address, error) {
	if key == "" {
		return serde.Address{}, errNoKey()
	}
	return r.lookup(key, 1)
}

func (r *poolRequest) lookup(key string, n int) (serde.Address, error) {
	o, err := r.Request.Lookup(key, n)
	if err != nil {
		return serde.Address{}, err
	}
	return r.p.handle(o), nil
}

func (r *poolRequest) Keep(key string) (h serde.Address, note []byte, err error) {
	if key == "" {
		return serde.Address{}, nil, errNoKey()
	}
	o, err := r.Request.Lookup(key, 0)
	if err != nil {
		return serde.Address{}, nil, err
	}
	return r.p.handle(o), o.Note(), nil
}

func (r *poolRequest) SetUses(h serde.Address, n int) error {
	return r.Request.SetUses(r.p.bytesHandle(h), n)
}

func (r *poolRequest) Stored(h serde.Address) (serde.Value, error) {
	o, err := r.Object(r.p.bytesHandle(h))
	if err != nil {
		return nil, err
	}
	if _, err := r.Bytes(o); err != nil { // which keeps the segment mapped
		return nil, err
	}
	return r.p.chunks.stored(o.Key(), h)
}
