package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ringcache/ringcache/shmstore"
)

// payloads is a store of package shmstore, whose readers count no uses.
type payloads struct{ *shmstore.Store }

func openPayloads(o storeOptions, adopt bool, watch func(shmstore.Change)) (store, shmstore.Adoption, error) {
	so := shmstore.Options{
		Name: o.Name, Dir: o.Dir, Size: o.Size, MaxObjectSize: o.maxObject(), ReaderSlots: slots, Format: "soak",
		Owner: "soak", FullSums: true, QuarantineTTL: -1, Quotas: map[string]int64{boundedTenant: o.quota()},
		Watch: watch,
	}
	if adopt {
		s, a, err := shmstore.Adopt(so)
		return payloads{s}, a, err
	}
	s, err := shmstore.Create(so)
	return payloads{s}, shmstore.Adoption{}, err
}

func (s payloads) begin(id string, _ []need) (request, error) {
	r, err := s.Begin(shmstore.RequestOptions{ID: id})
	return &payloadRequest{Request: r}, err
}

func (s payloads) fence() shmstore.Fence { return s.Fence() }
func (s payloads) reset() error          { return s.ResetReaders(0) }

func (s payloads) remove(key string) error {
	switch key[len(key)-1] % 3 {
	case 0:
		_, err := s.Evict(key)
		return err
	case 1:
		if _, err := s.Pin(key); err != nil {
			return err
		}
		s.Unpin(key)
		return nil
	}
	s.Remove(key)
	return nil
}

func (s payloads) clear(context.Context) error { return s.Clear() }
func (s payloads) check() error                { return s.CheckStructure() }

func (s payloads) contents() (all []object, err error) {
	r, err := s.Begin(shmstore.RequestOptions{ID: "contents"})
	if err != nil {
		return nil, err
	}
	defer r.Rollback()
	var keys []string
	if _, err := s.Inspect(func(_ *shmstore.Object, st shmstore.ObjectState) {
		if st.Indexed {
			keys = append(keys, st.Key)
		}
	}); err != nil {
		return nil, err
	}
	for _, key := range keys {
		o, err := r.Lookup(key, 0)
		if err != nil {
			return nil, fmt.Errorf("key %s is listed, but: %w", key, err)
		}
		got, err := describe(o)
		if err != nil {
			return nil, err
		}
		b, err := r.Bytes(o)
		if err == nil {
			err = checkPayload(b, got)
		}
		if err != nil {
			return nil, fmt.Errorf("%v is kept, but: %w", got, err)
		}
		all = append(all, got)
	}
	return all, nil
}

func (s payloads) end(ctx context.Context, keep bool) error {
	if keep {
		return s.Detach()
	}
	return s.Shutdown(ctx)
}

func describe(o *shmstore.Object) (object, error) {
	h := o.Handle()
	got := object{Key: o.Key(), Place: h.Offset, ID: h.ID}
	err := got.readNote(o.Note())
	if err == nil && uint64(got.Size) != h.Length {
		err = wrongBytes(fmt.Sprintf("in number: key %s has %d, its note has %d", o.Key(), h.Length, got.Size))
	}
	return got, err
}

func checkPayload(b []byte, o object) error {
	if len(b) != o.Size {
		return wrongBytes(fmt.Sprintf("in number: %d, want %d", len(b), o.Size))
	}
	return checkContent(b, o.seed(), 0)
}

// payloadRequest is a request of package shmstore.
type payloadRequest struct {
	*shmstore.Request
	got []object
}

func (r *payloadRequest) obtain(ctx context.Context, w need) error {
	o, err := r.Lookup(w.Key, 1)
	if errors.Is(err, shmstore.ErrNotFound) {
		o, err = r.put(ctx, w)
	}
	if err != nil {
		return err
	}
	got, err := describe(o)
	if err != nil {
		return err
	}
	if w.verify {
		b, err := r.Bytes(o)
		if err == nil {
			err = checkPayload(b, got)
		}
		if err != nil {
			return fmt.Errorf("%v: %w", got, err)
		}
	}
	if !slices.ContainsFunc(r.got, func(o object) bool { return o.ID == got.ID }) {
		r.got = append(r.got, got)
	}
	return nil
}

func (r *payloadRequest) put(ctx context.Context, w need) (*shmstore.Object, error) {
	o := shmstore.PutOptions{Tenant: w.tenant, Note: w.note()}
	if w.wait && !w.discard {
		o.Wait = ctx
	}
	res, err := r.Reserve(w.Key, w.Size, o)
	if err != nil {
		return nil, err
	}
	defer res.Discard()
	if w.discard {
		fillContent(res.Bytes()[:w.Size/2], w.seed(), 0)
		return nil, errGivenUp
	}
	w.fill(res.Bytes(), 0)
	return res.Commit(1)
}

func (r *payloadRequest) commit(uses int) ([]object, error) {
	for i := range r.got {
		r.got[i].Uses = uses
	}
	return r.got, r.Commit()
}

func (r *payloadRequest) rollback() { r.Rollback() }
func (r *payloadRequest) finish()   { r.Finish() }
func (r *payloadRequest) abort()    { r.Abort() }
