package mmcache

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"sync/atomic"

	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmring/memory"
	"github.com/ringcache/ringcache/shmstore"
)

// Shared is a [Cache] of mode shm, which keeps items in shared memory, with their
// prompt updates.
type Shared struct {
	*cache
	store    objstore.Store
	adoption shmstore.Adoption
	begun    atomic.Uint64 // transactions
}

// sharedEntry is an item in shared memory.
type sharedEntry struct {
	description
	handle serde.Address
}

func (*sharedEntry) needs(int64) int64 { return 0 }
func (*sharedEntry) data() *serde.Item { return nil }
func (*sharedEntry) lasts() bool       { return true }

// OpenShared opens a cache of mode shm: it creates the segment, which the workers
// attach to when they start, and which Close removes; or it adopts one
// (SharedOptions.Adopt). Options.Mode is not looked at. The errors are those of
// objstore.Create and objstore.Adopt.
func OpenShared(o Options) (*Shared, error) {
	o.Mode = SHM
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Shared{cache: newCache(o)}
	s.backend = s
	so := o.store()
	so.Watch = func(c shmstore.Change) {
		kind := Evicted
		if c.Present {
			kind = Added
		}
		s.events.emit(Event{Kind: kind, Key: c.Key})
	}
	if s.store, err = s.openStore(o.Shared.Adopt, so); err != nil {
		return nil, err
	}
	return s, nil
}

// openStore adopts a store, or makes one if there is none to adopt.
func (s *Shared) openStore(adopt bool, o objstore.Options) (store objstore.Store, err error) {
	if adopt {
		if store, s.adoption, err = objstore.Adopt(o); !errors.Is(err, fs.ErrNotExist) {
			return store, err
		}
	}
	return objstore.Create(o)
}

// Name returns the name of the segment, which the engine needs
// (pycompat.SegmentEnv).
func (s *Shared) Name() string { return s.store.Name() }

// Adoption returns what OpenShared found in a segment that it took over; it is zero
// if OpenShared made a new one.
func (s *Shared) Adoption() shmstore.Adoption { return s.adoption }

// Prepare maps the pages ahead, and asks for huge pages, NUMA nodes and locked
// memory; the report lists what was obtained. See segment.Segment.Prepare.
func (s *Shared) Prepare(ctx context.Context, o memory.Options) (memory.Report, error) {
	return s.store.Segment().Prepare(ctx, o)
}

// Fence marks a moment in the order of what was sent, see objstore.Store.Fence:
// take it, send a call that every worker executes behind everything sent before,
// and call Passed when all have answered. Aborted requests keep their items until
// then. In a FIFO they wait for their counts, and a fence proves nothing.
func (s *Shared) Fence() shmstore.Fence { return s.store.Fence() }

// State returns what the store keeps of every object, with the counts that are in
// the segment now.
func (s *Shared) State() (objstore.State, error) {
	st, err := s.store.State()
	return st, closedError(err)
}

// ResetReaders is called when the engine was restarted, with so many readers (0: as
// many as before), see objstore.Store.ResetReaders: the items stay, and requests
// that were committed to the old engine need none of them any more.
func (s *Shared) ResetReaders(readers int) error {
	return closedError(s.store.ResetReaders(readers))
}

// Detach is Close, but leaves the segment with its items for the next process
// (SharedOptions.Adopt).
func (s *Shared) Detach() error { return s.closeNow(s.store.Detach) }

// begin starts a request of the store. Its id is made unique, since a request that
// has ended here stays open there while one of its items is still being made.
func (s *Shared) begin(id string) (transaction, error) {
	r, err := s.store.Begin(id + "#" + strconv.FormatUint(s.begun.Add(1), 10))
	if err != nil {
		return nil, closedError(err)
	}
	return &sharing{s, r}, nil
}

// sharing is a transaction that is a request of the store.
type sharing struct {
	s *Shared
	r objstore.Request
}

func (t *sharing) find(key string) (entry, bool) {
	h, note, err := t.r.Keep(key)
	if err != nil {
		return nil, false
	}
	e := &sharedEntry{description{key: key}, h}
	if len(note) >= noteFixed { // else it was put by hand, beside this cache
		e.size, e.updates = int64(binary.LittleEndian.Uint64(note)), note[noteFixed:]
	}
	return e, true
}

// The store keeps a note with each object: the item's size by vLLM's rules, in so
// many bytes, little-endian; and its prompt updates.
const noteFixed = 8

func appendNote(size int64, updates []byte) []byte {
	return append(binary.LittleEndian.AppendUint64(nil, uint64(size)), updates...)
}

func (t *sharing) room(b *Builder, it *serde.Item) (room, error) {
	r, err := t.r.Reserve(b.wanted.key, it, objstore.PutOptions{
		Tenant: b.wanted.tenant, Note: appendNote(b.size, b.updates),
	})
	switch {
	case err == nil:
		return &sharedRoom{r}, nil
	case errors.Is(err, objstore.ErrTooLarge):
		return newHeapRoom(it, TooLarge)
	case errors.Is(err, objstore.ErrFull):
		return newHeapRoom(it, Full)
	case errors.Is(err, objstore.ErrKeyExists): // put by hand, beside this cache
		return newHeapRoom(it, InUse)
	}
	return nil, closedError(err)
}

// sharedRoom is memory in the segment.
type sharedRoom struct{ r *objstore.Reservation }

func (m *sharedRoom) tensor(key string) []byte { return m.r.Tensor(key) }

func (m *sharedRoom) discard() { m.r.Discard() }

func (m *sharedRoom) done(b *Builder) (entry, error) {
	m.r.SetCost(b.cost)
	h, err := m.r.Commit()
	if err != nil {
		return nil, closedError(err)
	}
	return &sharedEntry{b.describe(), h}, nil
}

// commit sends the handles, which count once for each place in the request and each
// child. If the request can't be sent they count until it is committed, with whatever
// count is right then, or rolled back.
func (t *sharing) commit(_ context.Context, r *Request, send func(Batch) error) error {
	for _, w := range r.byKey {
		if e, ok := w.entry.(*sharedEntry); ok {
			if err := t.r.SetUses(e.handle, w.places*r.children); err != nil {
				return closedError(err)
			}
		}
	}
	items := make([]Wire, len(r.wants))
	for i, w := range r.wants {
		e, ok := w.entry.(*sharedEntry)
		if !ok {
			items[i] = inline(w.entry)
			continue
		}
		items[i] = Wire{
			Key: e.key, Form: FormAddress, Item: serde.NewAddressItem(e.handle, w.modality), Handle: e.handle, Updates: e.updates, sharing: t,
		}
	}
	if err := send(Batch{Items: items}); err != nil {
		return err
	}
	_ = t.r.Commit() // fails only if the store was abandoned meanwhile
	return nil
}

// stored returns what a worker will find at the address in an address item.
func (t *sharing) stored(w Wire) (*serde.Item, error) {
	h, ok, err := serde.ParseAddress(w.Item, serde.Options{Generation: t.s.o.Generation})
	if err != nil || !ok {
		return nil, errors.Join(fmt.Errorf("%w: the address item of key %q has no address", ErrInvalid, w.Key), err)
	}
	v, err := t.r.Stored(h)
	if err != nil {
		return nil, err
	}
	it, ok := v.(*serde.Item)
	if !ok {
		return nil, fmt.Errorf("%w: under key %q lies a %T, not an item", ErrInvalid, w.Key, v)
	}
	return it, nil
}

func (t *sharing) end(how ending) {
	switch how {
	case finish:
		t.r.Finish()
	case abort:
		t.r.Abort()
	default:
		t.r.Rollback()
	}
}

func (s *Shared) invalidate(key string) bool { return s.store.Remove(key) }

func (s *Shared) clear(_ context.Context, send func(lrusync.Envelope) error) error {
	if err := send(lrusync.Envelope{}); err != nil {
		return err
	}
	if err := s.store.Clear(); err != nil {
		return closedError(err)
	}
	s.cleared()
	return nil
}

func (s *Shared) contents() (all []lrusync.KeySize) {
	st, err := s.store.State()
	if err != nil {
		return nil
	}
	for _, o := range st.Objects {
		if o.Indexed {
			all = append(all, lrusync.KeySize{Key: o.Key, Size: o.Bytes})
		}
	}
	return all
}

func (s *Shared) measure() (items, bytes, quarantined int64) {
	st, err := s.store.Stats()
	if err != nil { // closed
		return 0, 0, 0
	}
	return int64(st.Objects), st.Used, int64(st.QuarantinedObjects)
}

func (s *Shared) check() error { return s.store.CheckStructure() }

func (s *Shared) close() error { return s.store.Close() }

func (s *Shared) shutdown(ctx context.Context) error { return s.store.Shutdown(ctx) }

func (s *Shared) abandon() error { return s.store.Abandon() }
