package mmcache

import (
	"context"

	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/serde"
)

// uncached is a cache of mode none, which keeps nothing.
type uncached struct {
	*cache
	producing
	inHeap
}

func openUncached(o Options) (*uncached, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	u := &uncached{cache: newCache(o)}
	u.backend, u.neverHits = u, true
	return u, nil
}

func (*uncached) invalidate(string) bool { return false }

func (u *uncached) clear(_ context.Context, send func(lrusync.Envelope) error) error {
	if err := send(lrusync.Envelope{}); err != nil {
		return err
	}
	u.cleared()
	return nil
}

func (*uncached) contents() []lrusync.KeySize { return nil }

func (*uncached) measure() (items, bytes, quarantined int64) { return 0, 0, 0 }

func (*uncached) check() error { return nil }

// producing is what transactions do in which every item has to be made, on the heap.
type producing struct{}

func (producing) begin(*transaction, string) error { return nil }

func (producing) find(*transaction, string) (entry, bool) { return entry{}, false }

func (producing) room(_ *transaction, _ *Builder, it *serde.Item) (room, error) {
	return newHeapRoom(it, nil)
}

func (producing) commit(_ context.Context, r *Request, send func(Batch) error) error {
	return send(Batch{Items: r.wires()})
}

func (producing) end(*transaction, ending) {}

// inHeap is the end of a backend that has nothing but memory of its own.
type inHeap struct{}

func (inHeap) close() error                   { return nil }
func (inHeap) shutdown(context.Context) error { return nil }
func (inHeap) abandon() error                 { return nil }
