package mmcache

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/serde"
)

// sharedEntry is an item in shared memory.
type sharedEntry struct {
	description
	handle serde.Address
}

func (*sharedEntry) needs(int64) int64 { return 0 }
func (*sharedEntry) data() *serde.Item { return nil }
func (*sharedEntry) lasts() bool       { return true }

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
		return newHeapRoom(it, errTooLarge)
	case errors.Is(err, objstore.ErrFull):
		return newHeapRoom(it, errFull)
	case errors.Is(err, objstore.ErrKeyExists): // put by hand, beside this cache
		return newHeapRoom(it, errInUse)
	}
	return nil, closedError(err)
}

// sharedRoom is memory in the segment.
type sharedRoom struct{ r *objstore.Reservation }

func (m *sharedRoom) tensor(key string) []byte { return m.r.Tensor(key) }

func (m *sharedRoom) discard() { m.r.Discard() }

func (m *sharedRoom) done(b *Builder) (entry, error) {
	m.r.SetCost(b.Cost)
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
			Key: e.key, Item: serde.NewAddressItem(e.handle, w.modality), Handle: &e.handle, Updates: e.updates, sharing: t,
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
		return nil, errors.Join(fmt.Errorf("%w: the address item of key %q has no address", errInvalid, w.Key), err)
	}
	v, err := t.r.Stored(h)
	if err != nil {
		return nil, err
	}
	it, ok := v.(*serde.Item)
	if !ok {
		return nil, fmt.Errorf("%w: under key %q lies a %T, not an item", errInvalid, w.Key, v)
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
