package objstore

import (
	"crypto/hmac"
	"errors"

	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/serde"
)

// Get returns a view of whatever object is at a handle, for tests and tools. As
// vLLM's writer, it compares the id and neither verifies the signature nor looks at
// the key; it counts the read if the writer has a lock (shm_object_storage.py, 0.32.0
// and 0.33.0). For handles that came from outside see [Writer.Verify].
func (w *Writer) Get(h Handle, _ string) (*View, error) {
	if err := w.sv.seg.Hold(); err != nil {
		return nil, err
	}
	lease, err := w.leaseID(h.ID)
	if err != nil {
		w.sv.seg.Release()
		return nil, err
	}
	v, err := w.sv.read(h)
	if err != nil {
		lease.Release()
		w.sv.seg.Release()
		return nil, err
	}
	u := &use{sv: w.sv, handle: h, counter: w.counter, done: lease.Release}
	return u.view(v), nil
}

// leaseID leases the object of an id, so that it is not evicted under a view. The
// lease is empty if there is none.
func (w *Writer) leaseID(id uint32) (*Lease, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if o := w.objects[id]; o != nil && !w.closed && w.opt.Policy == Pool {
		return w.lease(o)
	}
	return &Lease{w: w, ended: true}, nil
}

// Signature returns the signature of the current object under a key without
// issuing a use. It is nil in generations without signatures.
func (w *Writer) Signature(key string) ([]byte, error) {
	if err := w.lock(); err != nil {
		return nil, err
	}
	defer w.mu.Unlock()
	o, ok := w.index[key]
	if !ok {
		return nil, &KeyNotFoundError{key}
	}
	return w.handle(o).Signature, nil
}

// Verify checks that a handle that came from outside is the current one of its
// key and carries a valid signature, where the generation has one. It fails
// with [SignatureError].
func (w *Writer) Verify(key string, h Handle) error {
	if err := w.lock(); err != nil {
		return err
	}
	defer w.mu.Unlock()
	o, ok := w.index[key]
	if !ok || o.address != h.Address || o.id != h.ID {
		return &SignatureError{Key: key}
	}
	switch {
	case !w.gen.Signed:
		return nil
	case h.Signature == nil:
		return &SignatureError{Key: key, Missing: true}
	case !hmac.Equal(h.Signature, o.sig):
		return &SignatureError{Key: key}
	}
	return nil
}

// ValidateItem checks an item that a client supplied before it is handed to the
// engine: one that claims to be an address must be the current one of its key,
// else it would show the client another client's object. Other items pass. It
// issues no use.
func (w *Writer) ValidateItem(it *serde.Item, key string) error {
	a, ok, err := serde.ParseAddress(it, w.sv.options)
	if err != nil {
		return errors.Join(&SignatureError{Key: key}, err)
	}
	if !ok {
		return nil
	}
	return w.Verify(key, a)
}

// reads is the read count of a chunk as it is now, 0 if it can't be read.
func (w *Writer) reads(address uint64) (n int64) {
	_ = w.sv.guard(Handle{Address: address}, func() error {
		n = w.readsNow(address)
		return nil
	})
	return n
}

// readsNow is reads for callers that are in a guard.
func (w *Writer) readsNow(address uint64) int64 {
	c, err := w.space.Access(address)
	if err != nil || len(c.Payload) < countSize {
		return 0
	}
	return readCount(c.Payload)
}

func (w *Writer) setReads(address uint64, n uint32) {
	_ = w.sv.guard(Handle{Address: address}, func() error {
		c, err := w.space.Access(address)
		if err == nil && len(c.Payload) >= countSize {
			mem.Store32(c.Payload, n)
		}
		return err
	})
}
