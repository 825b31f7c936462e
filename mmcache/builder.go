package mmcache

import (
	"context"
	"fmt"
	"time"

	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/serde"
)

// Producer makes an item: it decodes or fetches what it needs, calls
// [Builder.Layout] once and fills what that returns. Its error is that of
// [Request.Item], for everyone who waits for the same key.
type Producer func(ctx context.Context, b *Builder) error

// Ready is the producer of an item that exists already.
func Ready(it *serde.Item, updates []byte) Producer {
	return func(_ context.Context, b *Builder) error { return b.Layout(it, updates) }
}

// Builder receives an item from its producer. It is not for concurrent use,
// but tensors may be filled from any goroutine until the producer returns.
type Builder struct {
	// Cost is how long it takes to make the item, by which mode shm chooses what to
	// evict: a hint, see shmstore.PutOptions. If the producer leaves it 0, it is the time that the producer took.
	Cost time.Duration

	tx     *transaction
	wanted *wanted
	python lrusync.Python

	item    *serde.Item // as it was laid out; nil before
	room    room        // that it has
	size    int64       // by vLLM's rules
	updates []byte
}

// Layout describes what the item consists of and makes room for it, in shared memory
// where the mode has that. Tensors without Data are to be filled in place, see
// Tensor; those with Data are taken as they are, and copied into shared memory.
//
// updates are the item's prompt updates, nil for none. They are opaque here, and must not
// be written to afterwards; in mode shm they lie in the segment, so that whoever adopts
// it has them.
//
// Layout fails with [TooLargeError] if item and updates exceed what Want announced.
func (b *Builder) Layout(it *serde.Item, updates []byte) error {
	if b.item != nil {
		return fmt.Errorf("%w: Layout was called twice for %q", errInvalid, b.wanted.key)
	}
	size, err := lrusync.ItemSize(it, b.python)
	if err != nil {
		return fmt.Errorf("item %q: %w", b.wanted.key, err)
	}
	b.size, b.updates = size, updates
	if err := b.fits(); err != nil {
		return err
	}
	if b.room, err = b.tx.room(b.tx, b, it); err != nil {
		b.room = nil
		return err
	}
	b.item = it
	return nil
}

// fits fails if the item exceeds what was announced.
func (b *Builder) fits() error {
	if total := b.size + int64(len(b.updates)); total > b.wanted.charge {
		return &TooLargeError{Key: b.wanted.key, Bytes: total, Limit: b.wanted.charge}
	}
	return nil
}

// Tensor returns the bytes of a laid-out elem that is one tensor, row-major and
// little-endian, to be filled; nil if there is none. All of them must be filled,
// and not be touched after the producer has returned.
func (b *Builder) Tensor(key string) []byte {
	if b.room == nil {
		return nil
	}
	return b.room.tensor(key)
}

// produce runs a producer. Whatever it returns, the caller calls discard, or done of
// the room.
func (b *Builder) produce(ctx context.Context, p Producer) error {
	start := time.Now()
	if err := p(ctx, b); err != nil {
		return err
	}
	if b.Cost == 0 {
		b.Cost = time.Since(start)
	}
	if b.item == nil {
		return fmt.Errorf("%w: the producer of %q returned without a Layout that succeeded", errInvalid, b.wanted.key)
	}
	return nil
}

// discard frees what the producer has laid out, if anything.
func (b *Builder) discard() {
	if b.room != nil {
		b.room.discard()
	}
}

// entry returns what the producer has made.
func (b *Builder) entry(w where) entry {
	return entry{where: w, key: b.wanted.key, size: b.size, updates: b.updates}
}

// allocated returns the item with memory for the tensors that have none.
func allocated(it *serde.Item) (*serde.Item, error) {
	c := &serde.Item{Modality: it.Modality, Elems: make([]serde.Elem, len(it.Elems))}
	for i, e := range it.Elems {
		d, err := allocatedData(e.Data)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", e.Key, err)
		}
		e.Data = d
		c.Elems[i] = e
	}
	return c, nil
}

func allocatedData(d any) (any, error) {
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
	case []any:
		c := make([]any, len(d))
		for i, e := range d {
			var err error
			if c[i], err = allocatedData(e); err != nil {
				return nil, err
			}
		}
		return c, nil
	}
	return d, nil
}
