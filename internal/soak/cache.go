package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/shmstore"
)

// cache is a pool behind package mmcache.
type cache struct{ *mmcache.Shared }

func openCache(o storeOptions, adopt bool) (store, shmstore.Adoption, error) {
	c, err := mmcache.OpenShared(mmcache.Options{
		Capacity: float64(o.Size), MaxItem: int64(o.maxObject()), InFlight: 4 * int64(o.maxObject()),
		Shared: mmcache.SharedOptions{
			Name: o.Name, Dir: o.Dir, Owner: "soak", Readers: o.Readers, MaxObject: o.maxObject(), Adopt: adopt,
			QuarantineTTL: -1,
			Quotas:        map[string]int64{boundedTenant: o.quota()},
		},
	})
	if err != nil {
		return nil, shmstore.Adoption{}, err
	}
	return cache{c}, c.Adoption, nil
}

func (c cache) begin(id string, needs []need) (request, error) {
	r := &cacheRequest{c: c}
	var wants []mmcache.Want
	for _, w := range needs {
		wants = append(wants, mmcache.Want{Key: w.Key, Tenant: w.tenant, Modality: "image"})
	}
	var err error
	r.Request, err = c.Begin(context.Background(), id, wants...)
	return r, err
}

func (c cache) fence() shmstore.Fence { return c.Fence() }
func (c cache) reset() error          { return c.ResetReaders(0) }
func (c cache) check() error          { return c.CheckStructure() }

// remove invalidates the item, or holds it while it is invalidated.
func (c cache) remove(key string) error {
	if key[len(key)-1]%2 == 0 {
		h, ok, err := c.Lookup(context.Background(), key)
		if err != nil {
			return err
		}
		if ok {
			defer h.Release()
		}
	}
	c.Invalidate(key)
	return nil
}

func (c cache) clear(ctx context.Context) error {
	return c.Clear(ctx, func(lrusync.Envelope) error { return nil })
}

// contents reads every cached item by a request that fails at the moment of sending, so that nothing is sent.
func (c cache) contents() (all []object, err error) {
	for key := range c.Keys() {
		h, ok, err := c.Lookup(context.Background(), key)
		if err != nil || !ok {
			return nil, fmt.Errorf("key %s is listed, but: %w", key, errors.Join(err, fs.ErrNotExist))
		}
		r, err := h.Begin(context.Background(), "contents", mmcache.Want{Key: key, Modality: "image"})
		if err != nil {
			return nil, err
		}
		req := &cacheRequest{Request: r, c: c, unsent: true}
		err = req.obtain(context.Background(), need{object: object{Key: key}, kept: true, verify: true})
		if err == nil {
			_, err = req.commit(1)
		}
		r.Rollback()
		if !errors.Is(err, errGivenUp) {
			return nil, fmt.Errorf("key %s is kept, but: %w", key, err)
		}
		all = append(all, req.got...)
	}
	return all, nil
}

func (c cache) end(ctx context.Context, keep bool) error {
	if keep {
		return c.Detach()
	}
	return c.Shutdown(ctx)
}

// cacheRequest is a request of package mmcache.
type cacheRequest struct {
	*mmcache.Request
	c      cache
	got    []object
	unsent bool // commit fails at the moment of sending, on purpose
	verify bool
}

func (r *cacheRequest) obtain(ctx context.Context, w need) error {
	r.verify = r.verify || w.verify
	it, err := r.Item(ctx, w.Key, func(_ context.Context, b *mmcache.Builder) error {
		if w.kept {
			return errors.New("a kept item was made again")
		}
		if err := b.Layout(layout(w.Size), w.note()); err != nil {
			return err
		}
		at := 0
		for _, name := range []string{"x", "y"} {
			part := b.Tensor(name)
			w.fill(part, at)
			at += len(part)
			if w.discard {
				return errGivenUp
			}
		}
		return nil
	})
	if err == nil {
		o := object{Key: w.Key}
		err = o.readNote(it.Updates)
	}
	return err
}

func (r *cacheRequest) commit(uses int) ([]object, error) {
	r.SetChildren(uses)
	err := r.Commit(context.Background(), func(b mmcache.Batch) error {
		for _, w := range b.Items {
			o := object{Key: w.Key, Uses: uses}
			if err := o.readNote(w.Updates); err != nil {
				return err
			}
			if r.verify || w.Handle == nil {
				it, err := w.Stored()
				if err == nil {
					err = checkValue(it, o)
				}
				if err != nil {
					return fmt.Errorf("%v: %w", o, err)
				}
			}
			if w.Handle != nil {
				o.setHandle(*w.Handle)
				r.got = append(r.got, o)
			}
		}
		if r.unsent {
			return errGivenUp
		}
		return nil
	})
	return r.got, err
}

func (r *cacheRequest) rollback() { r.Rollback() }
func (r *cacheRequest) finish()   { r.Finish() }
func (r *cacheRequest) abort()    { r.Abort() }
