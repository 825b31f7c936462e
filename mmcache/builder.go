package mmcache

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/serde"
)

// Producer makes an item: it decodes or fetches what it needs, calls
// [Builder.Layout] once and fills what that returns. Its error is that of
// [Request.Item], for everyone who waits for the same key.
type Producer func(ctx context.Context, b *Builder) error

// Ready is the producer of an item that exists already.
func Ready(it *serde.Item, updates []byte) Producer {
	return func(_ context.Context, b *Builder) error {
		b.SetUpdates(updates)
		return b.Layout(it)
	}
}

// Builder receives an item from its producer. It is not for concurrent use,
// but tensors may be filled from any goroutine until the producer returns.
type Builder struct {
	back  backend
	o     *Options
	key   string
	limit int64 // bytes that were announced

	tenant string
	cost   time.Duration

	item    *serde.Item           // laid out; its tensors are on the heap, or
	res     *objstore.Reservation // in the segment
	size    int64                 // by vLLM's rules
	updates []byte
	cause   Cause // why it is not in the segment
	misuse  error
	check   func(*Builder) // what was made; nil but for Options.VerifyHits
}

// Layout says what the item consists of and makes room for it, in shared memory
// where the mode has that. Tensors without Data are to be filled in place, see
// Tensor; those with Data are taken as they are, and copied into shared memory.
// It fails with [TooLargeError] if the item exceeds what Want announced.
func (b *Builder) Layout(it *serde.Item) error {
	if b.item != nil {
		return fmt.Errorf("%w: Layout was called twice for %q", ErrInvalid, b.key)
	}
	size, err := lrusync.ItemSize(it, b.o.Python)
	if err != nil {
		return fmt.Errorf("item %q: %w", b.key, err)
	}
	if total := size + int64(len(b.updates)); total > b.limit {
		return &TooLargeError{Key: b.key, Bytes: total, Limit: b.limit}
	}
	b.size = size
	if b.res, b.cause, err = b.back.reserve(b, it); err != nil {
		return err
	}
	b.item = it
	if b.res == nil {
		b.item, err = onHeap(it)
	}
	return err
}

// onHeap returns the item with memory for the tensors that have none.
func onHeap(it *serde.Item) (*serde.Item, error) {
	c := &serde.Item{Modality: it.Modality, Elems: make([]serde.Elem, len(it.Elems))}
	for i, e := range it.Elems {
		d, err := filled(e.Data)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", e.Key, err)
		}
		e.Data = d
		c.Elems[i] = e
	}
	return c, nil
}

func filled(d serde.Data) (serde.Data, error) {
	switch d := d.(type) {
	case *serde.Tensor:
		if d.Data != nil {
			return d, nil
		}
		n, err := d.NBytes()
		if err != nil {
			return nil, err
		}
		return &serde.Tensor{DType: d.DType, Shape: d.Shape, Data: make([]byte, n)}, nil
	case serde.List:
		c := make(serde.List, len(d))
		for i, e := range d {
			var err error
			if c[i], err = filled(e); err != nil {
				return nil, err
			}
		}
		return c, nil
	}
	return d, nil
}

// Tensor returns the bytes of a laid-out elem that is one tensor, row-major and
// little-endian, to be filled; nil if there is none. All of them must be filled,
// and not be touched after the producer has returned.
func (b *Builder) Tensor(key string) []byte {
	if b.res != nil {
		return b.res.Tensor(key)
	}
	if b.item == nil {
		return nil
	}
	if e, ok := b.item.Lookup(key); ok {
		if t, ok := e.Data.(*serde.Tensor); ok {
			return t.Data
		}
	}
	return nil
}

// SetUpdates attaches the item's prompt updates, which are opaque here. It must be
// called before Layout, which makes room for them: in mode shm they lie in the
// segment, so that whoever adopts it has them. They must not be written to
// afterwards.
func (b *Builder) SetUpdates(updates []byte) {
	if b.item != nil {
		b.misuse = fmt.Errorf("%w: SetUpdates was called after Layout for %q", ErrInvalid, b.key)
		return
	}
	b.updates = updates
}

// SetCost says how long it takes to make the item, by which mode shm chooses what
// to evict. Without it, it is the time that the producer took.
func (b *Builder) SetCost(d time.Duration) { b.cost = d }

// InPlace reports whether the tensors lie in shared memory.
func (b *Builder) InPlace() bool { return b.res != nil }

// run lets the producer make the item. Nothing is left behind on an error or a
// panic.
func (b *Builder) run(ctx context.Context, produce Producer) (e *entry, err error) {
	defer func() {
		if e == nil && b.res != nil {
			b.res.Discard()
		}
	}()
	start := time.Now()
	if err := produce(ctx, b); err != nil {
		return nil, err
	}
	if b.cost == 0 {
		b.cost = time.Since(start)
	}
	if b.misuse != nil {
		return nil, b.misuse
	}
	if b.item == nil {
		return nil, fmt.Errorf("%w: the producer of %q returned without a Layout that succeeded", ErrInvalid, b.key)
	}
	if total := b.size + int64(len(b.updates)); total > b.limit {
		return nil, &TooLargeError{Key: b.key, Bytes: total, Limit: b.limit}
	}
	if b.check != nil {
		b.check(b)
	}
	return b.back.admit(b)
}

// heapEntry is what was made as an entry that no cache holds.
func (b *Builder) heapEntry() *entry {
	return &entry{key: b.key, size: b.size, updates: b.updates, item: b.item, cause: b.cause}
}

// isFull reports whether a store's refusal means that the item has to go inline,
// and why.
func isFull(err error) (Cause, bool) {
	switch {
	case errors.Is(err, objstore.ErrTooLarge):
		return TooLarge, true
	case errors.Is(err, objstore.ErrFull):
		return Full, true
	}
	return NoCause, false
}
