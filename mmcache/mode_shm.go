package mmcache

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmring/segment"
)

// shared keeps items in shared memory, with their prompt updates attached.
type shared struct {
	w *objstore.Writer
}

// appendNote is what the store keeps with an object: its size by vLLM's rules, 8
// bytes little-endian, and its prompt updates.
func appendNote(size int64, updates []byte) []byte {
	return append(binary.LittleEndian.AppendUint64(nil, uint64(size)), updates...)
}

func newShared(o Options, ev *events) (*shared, objstore.Adoption, error) {
	so := o.store()
	so.Watch = func(c objstore.Change) {
		kind := Evicted
		if c.Present {
			kind = Added
		}
		ev.emit(Event{Kind: kind, Key: c.Key})
	}
	if o.Adopt {
		w, a, err := objstore.Adopt(so)
		if !errors.Is(err, segment.ErrNotExist) {
			return &shared{w: w}, a, err
		}
	}
	w, err := objstore.Create(so)
	return &shared{w: w}, objstore.Adoption{}, err
}

func (s *shared) find(key string) (*entry, bool) {
	l, err := s.w.Lease(key)
	if err != nil {
		return nil, false
	}
	return leased(l), true
}

func leased(l *objstore.Lease) *entry {
	e := &entry{key: l.Key(), lease: l, cached: true, free: l.Release, abort: l.Abort}
	if n := l.Note(); len(n) >= 8 { // else it was put by hand, beside this cache
		e.size, e.updates = int64(binary.LittleEndian.Uint64(n)), n[8:]
	}
	return e
}

func (s *shared) reserve(b *Builder, it *serde.Item) (*objstore.Reservation, Cause, error) {
	r, err := s.w.ReserveWith(b.key, it, objstore.PutOptions{
		Tenant: b.tenant, Note: appendNote(b.size, b.updates),
	})
	if cause, ok := isFull(err); ok {
		return nil, cause, nil
	}
	if errors.Is(err, objstore.ErrKeyExists) {
		// Put by hand, beside this cache; the request sends its own copy.
		return nil, InUse, nil
	}
	return r, NoCause, closedError(err)
}

func (s *shared) admit(b *Builder) (*entry, error) {
	if b.res == nil {
		return b.heapEntry(), nil
	}
	b.res.SetCost(b.cost)
	l, err := b.res.CommitLeased()
	if err != nil {
		return nil, closedError(err)
	}
	return leased(l), nil
}

// commit issues a handle for each item; if the request can't be sent they are
// taken back, and count as never issued.
func (s *shared) commit(_ context.Context, r *Request, _ bool, send func(Batch) error) (err error) {
	defer func() {
		if x := recover(); x != nil {
			r.takeBack()
			panic(x)
		}
		if err != nil {
			r.takeBack()
		}
	}()
	items := make([]Wire, len(r.wants))
	for i, w := range r.wants {
		e := w.entry
		if e.lease == nil {
			items[i] = e.inline()
			continue
		}
		h, err := e.lease.IssueN(r.children)
		if err != nil {
			return closedError(err)
		}
		items[i] = Wire{Key: e.key, Form: FormAddress, Item: serde.NewAddressItem(h, w.modality), Handle: h, Updates: e.updates, lease: e.lease}
	}
	if err := send(Batch{Items: items}); err != nil {
		return err
	}
	r.sent()
	return nil
}

func (s *shared) invalidate(key string) bool { return s.w.Retire(key) }

func (s *shared) clear(_ context.Context, send func(lrusync.Envelope) error) error {
	if err := send(lrusync.Envelope{}); err != nil {
		return err
	}
	return closedError(s.w.Clear())
}

func (s *shared) contents() (all []lrusync.KeySize, size int64) {
	st, err := s.w.State()
	if err != nil {
		return nil, 0
	}
	for _, o := range st.Objects {
		if o.Indexed {
			all = append(all, lrusync.KeySize{Key: o.Key, Size: o.Bytes})
		}
	}
	return all, int64(st.Used)
}

// sums returns what contents adds up to, and the number of objects in quarantine,
// without a look at each object.
func (s *shared) sums() (items, bytes, quarantined int64) {
	st, err := s.w.Stats()
	if err != nil {
		return 0, 0, 0
	}
	return int64(st.Objects), st.Used, int64(st.QuarantinedObjects)
}

func (s *shared) check() error { return s.w.CheckStructure() }

func (s *shared) close() error { return s.w.Close() }
