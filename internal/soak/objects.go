package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmstore"
)

// objects is a store of package objstore.
type objects struct {
	objstore.Store
	pool *objstore.Pool // nil in a FIFO
}

func objectOptions(o storeOptions, watch func(shmstore.Change)) objstore.Options {
	so := objstore.Options{
		Name: o.Name, Dir: o.Dir, RingSize: o.Size, MaxObjectSize: o.maxObject(), Readers: o.Readers,
		Owner: "soak", Watch: watch,
	}
	if o.Kind == "pool" {
		so.QuarantineTTL, so.ReaderSlots = -1, slots
		so.Quotas = map[string]int64{boundedTenant: o.quota()}
	}
	return so
}

func openObjects(o storeOptions, adopt bool, watch func(shmstore.Change)) (store, shmstore.Adoption, error) {
	so := objectOptions(o, watch)
	if o.Kind == "fifo" {
		s, err := objstore.CreateFIFO(so)
		return objects{Store: s}, shmstore.Adoption{}, err
	}
	if adopt {
		s, a, err := objstore.AdoptPool(so)
		return objects{s, s}, a, err
	}
	s, err := objstore.CreatePool(so)
	return objects{s, s}, shmstore.Adoption{}, err
}

func (s objects) begin(id string, _ []need) (request, error) {
	r, err := s.Begin(id)
	return &objectRequest{Request: r}, err
}

func (s objects) fence() shmstore.Fence {
	if s.pool == nil {
		return shmstore.Fence{}
	}
	return s.pool.Fence()
}

func (s objects) reset() error { return s.ResetReaders(0) }

func (s objects) remove(key string) error {
	if s.pool != nil && key[len(key)-1]%2 == 0 {
		_, err := s.pool.Evict(key)
		return err
	}
	s.Remove(key)
	return nil
}

func (s objects) clear(context.Context) error { return s.Clear() }
func (s objects) check() error                { return s.CheckStructure() }

func (s objects) contents() (all []object, err error) {
	state, err := s.State()
	if err != nil {
		return nil, err
	}
	r, err := s.Begin("contents")
	if err != nil {
		return nil, err
	}
	defer r.Rollback()
	for _, o := range state.Objects {
		if !o.Indexed {
			continue
		}
		h, note, err := r.Keep(o.Key)
		if err != nil {
			return nil, fmt.Errorf("key %s is listed, but: %w", o.Key, err)
		}
		got := object{Key: o.Key}
		got.setHandle(h)
		if err := got.readNote(note); err != nil {
			return nil, err
		}
		v, err := r.Stored(h)
		if err != nil {
			return nil, fmt.Errorf("%v is kept, but: %w", got, err)
		}
		if err := checkValue(v, got); err != nil {
			return nil, fmt.Errorf("%v: %w", got, err)
		}
		all = append(all, got)
	}
	return all, nil
}

func (s objects) end(ctx context.Context, keep bool) error {
	if keep && s.pool != nil {
		return s.Detach()
	}
	return s.Shutdown(ctx)
}

// objectRequest is a request of package objstore.
type objectRequest struct {
	objstore.Request
	got []object
}

func (r *objectRequest) obtain(ctx context.Context, w need) error {
	h, note, err := r.Keep(w.Key)
	got := object{Key: w.Key}
	if errors.Is(err, objstore.ErrNotFound) {
		got = w.object
		h, err = r.put(ctx, w)
	} else if err == nil {
		err = got.readNote(note)
	}
	if err != nil {
		return err
	}
	got.setHandle(h)
	if w.verify {
		v, err := r.Stored(h)
		if err != nil {
			return err
		}
		if err := checkValue(v, got); err != nil {
			return fmt.Errorf("%v: %w", got, err)
		}
	}
	if !slices.ContainsFunc(r.got, func(o object) bool { return o.ID == got.ID }) {
		r.got = append(r.got, got)
	}
	return nil
}

func (r *objectRequest) put(ctx context.Context, w need) (serde.Address, error) {
	o := objstore.PutOptions{Tenant: w.tenant, Note: w.note()}
	if w.wait && !w.discard {
		o.Wait = ctx
	}
	res, err := r.Reserve(w.Key, layout(w.Size), o)
	if err != nil {
		return serde.Address{}, err
	}
	defer res.Discard()
	at := 0
	for _, b := range res.Tensors() {
		w.fill(b, at)
		at += len(b)
		if w.discard {
			return serde.Address{}, errGivenUp
		}
	}
	return res.Commit()
}

// errGivenUp is the error of a need to be discarded.
var errGivenUp = errors.New("given up on purpose")

func (r *objectRequest) commit(uses int) ([]object, error) {
	for i := range r.got {
		o := &r.got[i]
		o.Uses = uses
		if err := r.SetUses(o.handle(), uses); err != nil {
			return nil, err
		}
	}
	return r.got, r.Commit()
}

func (r *objectRequest) rollback() { r.Rollback() }
func (r *objectRequest) finish()   { r.Finish() }
func (r *objectRequest) abort()    { r.Abort() }

// layout is an item of n bytes of content in two tensors, the smaller one first.
func layout(n int) *serde.Item {
	it := &serde.Item{Modality: "image"}
	first := n / 3 &^ 7
	for i, part := range []int{first, n - first} {
		if part > 0 {
			it.Elems = append(it.Elems, serde.Elem{
				Key: string(rune('x' + i)), Data: &serde.Tensor{DType: "uint8", Shape: []int{part}},
				Field: serde.Field{Kind: serde.Batched},
			})
		}
	}
	return it
}

// checkValue compares an item of layout with what it must contain.
func checkValue(v serde.Value, o object) error {
	it, ok := v.(*serde.Item)
	if !ok {
		return wrongBytes(fmt.Sprintf("that are a %T", v))
	}
	at := 0
	for _, name := range []string{"x", "y"} {
		e, ok := it.Lookup(name)
		if !ok {
			continue
		}
		t, ok := e.Data.(*serde.Tensor)
		if !ok {
			return wrongBytes(fmt.Sprintf("that are a %T in field %s", e.Data, name))
		}
		if err := checkContent(t.Data, o.seed(), at); err != nil {
			return err
		}
		at += len(t.Data)
	}
	if at != o.Size {
		return wrongBytes(fmt.Sprintf("in number: %d, want %d", at, o.Size))
	}
	return nil
}
