package mmcache

import (
	"context"
	"errors"
	"fmt"

	"github.com/ringcache/ringcache/lrusync"
)

// mirrored knows what the engine keeps.
type mirrored struct {
	none
	events *events
	sender *lrusync.Sender
}

func newMirrored(o Options, ev *events) (*mirrored, error) {
	s, err := lrusync.NewSender(lrusync.Options{Capacity: o.Capacity, Generation: o.Generation})
	return &mirrored{events: ev, sender: s}, err
}

// find answers from the mirror. The engine can't be told to keep an item, so it
// may be gone at commit; it is made then.
func (m *mirrored) find(key string) (*entry, bool) {
	updates, size, ok := m.sender.Lookup(key)
	if !ok {
		return nil, false
	}
	return &entry{key: key, size: size, updates: updates}, true
}

// commit sends the request in its place among all others. What the engine lost
// since the request looked is made first; that never repeats for an item.
func (m *mirrored) commit(ctx context.Context, r *Request, fresh bool, send func(Batch) error) error {
	ctx, end := joined(ctx, r.c.done)
	defer end()
	for {
		items := make([]lrusync.Item, len(r.wants))
		for i, s := range r.wants {
			e := s.entry
			items[i] = lrusync.Item{Key: e.key, HasData: e.item != nil, Size: e.size, Updates: e.updates, Fresh: fresh && e.item != nil}
		}
		var batch Batch
		began := false
		_, err := m.sender.Send(ctx, items, func(t lrusync.Ticket) error {
			began = true
			batch.Envelope = t.Envelope
			batch.Items = make([]Wire, len(items))
			for i, s := range r.wants {
				if t.Omit[i] {
					batch.Items[i] = Wire{Key: s.key, Form: FormOmitted, Updates: t.Updates[i]}
				} else {
					batch.Items[i] = s.entry.inline()
				}
			}
			if err := send(batch); err != nil {
				return err
			}
			r.ticket = t.Envelope
			for _, k := range t.Evicted {
				m.tell(Evicted, k)
			}
			for _, k := range t.Added {
				m.tell(Added, k)
			}
			return nil
		})
		var need *lrusync.NeedDataError
		if !errors.As(err, &need) {
			return sendError(ctx, began, r.id, err)
		}
		for _, k := range need.Keys {
			if err := r.make(ctx, r.byKey[k]); err != nil {
				return err
			}
		}
	}
}

// tell emits an event, unless something that came meanwhile (a repair, a request that
// was sent again) has made it untrue.
func (m *mirrored) tell(kind EventKind, key string) {
	if _, _, has := m.sender.Lookup(key); has == (kind == Added) {
		m.events.emit(Event{Kind: kind, Key: key})
	}
}

// sendError makes an error of the wait for one's turn say so.
func sendError(ctx context.Context, began bool, id string, err error) error {
	switch {
	case errors.Is(err, lrusync.ErrNested):
		return fmt.Errorf("%w: in mode lru a request can't be sent, nor the cache cleared, from within the send of a request: %w", ErrInvalid, err)
	case !began && err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return &WaitError{For: WaitSend, Request: id, Err: ctx.Err()}
	}
	return err
}

// missed takes note of the engine's answer and makes what it lacks.
func (m *mirrored) missed(ctx context.Context, r *Request, keys []string) error {
	m.sender.Missed(r.ticket, keys)
	for _, k := range keys {
		m.tell(Evicted, k)
		if err := r.make(ctx, r.byKey[k]); err != nil {
			return err
		}
	}
	return nil
}

// invalidate has the next request carry the item; the engine keeps its copy
// until then.
func (m *mirrored) invalidate(key string) bool {
	_, _, ok := m.sender.Lookup(key)
	m.sender.Renew(key)
	return ok
}

func (m *mirrored) clear(ctx context.Context, send func(lrusync.Envelope) error) error {
	began := false
	err := m.sender.Clear(ctx, func(e lrusync.Envelope) error {
		began = true
		return send(e)
	})
	return sendError(ctx, began, "", err)
}

func (m *mirrored) contents() ([]lrusync.KeySize, int64) { return m.sender.Contents() }

func (m *mirrored) check() error { return m.sender.CheckStructure() }
