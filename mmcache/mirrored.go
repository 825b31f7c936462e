package mmcache

import (
	"context"
	"errors"
	"fmt"

	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/serde"
)

// Mirrored is a [Cache] of mode lru. The engine keeps the items; the cache mirrors
// what the engine has, and keeps prompt updates only.
type Mirrored struct {
	*cache
	inHeap
	sender *lrusync.Sender
}

// OpenMirrored opens a cache of mode lru. Options.Mode is not looked at.
func OpenMirrored(o Options) (*Mirrored, error) {
	o.Mode = modeLRU
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s, err := lrusync.NewSender(lrusync.Options{Capacity: o.Capacity, Generation: o.Generation})
	if err != nil {
		return nil, err
	}
	m := &Mirrored{cache: newCache(o), sender: s}
	m.backend, m.clearWeight = m, 1 // Clear waits for sends, and only the end of the cache for Clear
	return m, nil
}

// Repair takes the report of a receiver of package lrusync that it has drifted, and
// reports whether that was new. Requests whose items it missed are sent again with
// [Request.Missed].
func (m *Mirrored) Repair(d lrusync.Drift) bool {
	if !m.sender.Repair(d) {
		return false
	}
	m.count(func(st *Stats) { st.Repaired++ })
	m.events.emit(Event{Kind: eventLost}) // what the engine has is another now
	return true
}

func (*Mirrored) begin(*transaction, string) error { return nil }

// find finds what the engine has. The engine can't be made to keep it, so it may be gone
// at commit; it is made then.
func (m *Mirrored) find(_ *transaction, key string) (entry, bool) {
	updates, size, ok := m.sender.Lookup(key)
	if !ok {
		return entry{}, false
	}
	return entry{where: atEngine, key: key, size: size, updates: updates}, true
}

func (*Mirrored) room(_ *transaction, _ *Builder, it *serde.Item) (room, error) {
	return newHeapRoom(it, nil)
}

func (*Mirrored) end(*transaction, ending) {}

// commit sends the request in its place among all others. What the engine lost
// since the request looked is made first; that never repeats for an item.
func (m *Mirrored) commit(ctx context.Context, r *Request, send func(Batch) error) error {
	for {
		err := m.sendOnce(ctx, r, send)
		need, ok := errors.AsType[*lrusync.NeedDataError](err)
		if !ok {
			return err
		}
		if err := r.makeAll(ctx, need.Keys); err != nil {
			return err
		}
	}
}

// makeAll makes items of which the request does not have the data.
func (r *Request) makeAll(ctx context.Context, keys []string) error {
	ctx, end := joined(ctx, r.c.done)
	defer end()
	for _, k := range keys {
		if err := r.make(ctx, r.find(k)); err != nil {
			return err
		}
	}
	return nil
}

// sendOnce sends the request, unless it fails with a lrusync.NeedDataError first.
func (m *Mirrored) sendOnce(ctx context.Context, r *Request, send func(Batch) error) error {
	waiting := &lazilyJoined{Context: ctx, stop: r.c.done}
	defer waiting.close()
	t := &r.tx
	items := make([]lrusync.Item, len(r.places))
	for i, w := range r.places {
		e := &w.entry
		have := e.item != nil
		// The second time that the engine misses items, everything at hand goes along.
		items[i] = lrusync.Item{
			Key: e.key, HasData: have, Size: e.size, Updates: e.updates, Fresh: have && t.missed > 1,
		}
	}
	began := false
	_, err := m.sender.Send(waiting, items, func(ticket lrusync.Ticket) error {
		began = true
		batch := Batch{Items: r.wires(), Envelope: ticket.Envelope}
		for i := range batch.Items {
			if ticket.Omit[i] {
				batch.Items[i] = Wire{Key: items[i].Key, Updates: ticket.Updates[i]}
			}
		}
		if err := send(batch); err != nil {
			return err
		}
		t.ticket = ticket.Envelope
		for _, k := range ticket.Evicted {
			m.announce(eventEvicted, k)
		}
		for _, k := range ticket.Added {
			m.announce(eventAdded, k)
		}
		return nil
	})
	return sendError(waiting, began, r.id, err)
}

// announce emits an event, unless something that came meanwhile (a repair, a request that
// was sent again) has made it untrue.
func (m *Mirrored) announce(kind, key string) {
	if _, _, has := m.sender.Lookup(key); has == (kind == eventAdded) {
		m.events.emit(Event{Kind: kind, Key: key})
	}
}

// sendError returns a WaitError for the end of the wait for another request, and other
// errors as they are.
func sendError(ctx context.Context, began bool, id string, err error) error {
	if !began && err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return &WaitError{For: forSend, Request: id, Err: ctx.Err()}
	}
	return err
}

// Missed takes the engine's answer that it lacked items, and sends the request
// again with them, as Commit does. What is no longer at hand is made again, by
// the producers that Item was given. The client need not learn of it. Only an engine
// with a mirrored cache (mode lru) misses items: in other modes Missed fails with
// [fs.ErrInvalid].
func (r *Request) Missed(ctx context.Context, keys []string, send func(Batch) error) error {
	m, ok := r.c.backend.(*Mirrored)
	if !ok {
		return fmt.Errorf("%w: only an engine with a mirrored cache (mode lru) misses items, not mode %s",
			errInvalid, r.c.o.Mode)
	}
	return r.send(ctx, "Missed", committed, send, func() error {
		r.tx.missed++
		r.c.count(func(st *Stats) { st.Missed += int64(len(keys)); st.Resent++ })
		m.sender.Missed(r.tx.ticket, keys)
		for _, k := range keys {
			m.announce(eventEvicted, k)
			if w := r.find(k); w != nil {
				if err := r.make(ctx, w); err != nil {
					return err
				}
			}
		}
		return m.commit(ctx, r, send)
	})
}

// invalidate has the next request carry the item; the engine keeps its copy
// until then.
func (m *Mirrored) invalidate(key string) bool {
	_, _, ok := m.sender.Lookup(key)
	m.sender.Renew(key)
	return ok
}

func (m *Mirrored) clear(ctx context.Context, send func(lrusync.Envelope) error) error {
	began := false
	err := m.sender.Clear(ctx, func(e lrusync.Envelope) error {
		began = true
		err := send(e)
		if err == nil {
			m.cleared() // here, since the next request is announced once this returns
		}
		return err
	})
	return sendError(ctx, began, "", err)
}

func (m *Mirrored) contents() []lrusync.KeySize {
	all, _ := m.sender.Contents()
	return all
}

func (m *Mirrored) measure() (items, bytes, quarantined int64) {
	all, size := m.sender.Contents()
	return int64(len(all)), size, 0
}

func (m *Mirrored) check() error { return m.sender.CheckStructure() }
