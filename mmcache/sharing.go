package mmcache

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/serde"
)

// A transaction of mode shm is a request of the store.

func (*Shared) find(t *transaction, key string) (entry, bool) {
	h, note, err := t.stored.Keep(key)
	if err != nil {
		return entry{}, false
	}
	e := entry{where: inSegment, key: key, handle: h}
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

func (*Shared) room(t *transaction, b *Builder, it *serde.Item) (room, error) {
	r, err := t.stored.Reserve(b.wanted.key, it, objstore.PutOptions{
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
		return entry{}, closedError(err)
	}
	e := b.entry(inSegment)
	e.handle = h
	return e, nil
}

// commit sends the handles, which count once for each place in the request and each
// child. If the request can't be sent they count until it is committed, with whatever
// count is right then, or rolled back.
func (*Shared) commit(_ context.Context, r *Request, send func(Batch) error) error {
	t := r.tx.stored
	for i := range r.items {
		w := &r.items[i]
		if w.entry.where != inSegment {
			continue
		}
		if err := t.SetUses(w.entry.handle, w.places*r.children); err != nil {
			return closedError(err)
		}
	}
	if err := send(Batch{Items: r.wires()}); err != nil {
		return err
	}
	_ = t.Commit() // fails only if the store was abandoned meanwhile
	return nil
}

func (*Shared) end(t *transaction, how ending) {
	switch how {
	case finish:
		t.stored.Finish()
	case abort:
		t.stored.Abort()
	default:
		t.stored.Rollback()
	}
}
