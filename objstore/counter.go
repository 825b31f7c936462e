package objstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
)

// counter counts reads under the lock of the readers.
type counter struct {
	lock    Locker
	timeout time.Duration
	readers int64
}

func newCounter(l Locker, timeout time.Duration, readers int) *counter {
	if l == nil {
		return nil
	}
	if timeout <= 0 {
		timeout = 10 * time.Second
	}
	return &counter{l, timeout, int64(readers)}
}

// tryLocker is a [Locker] that can be taken without waiting.
type tryLocker interface {
	// TryLock reports whether it took the lock.
	TryLock() (bool, error)
}

// acquire takes the lock. A lock that is free needs no context with a deadline, which takes
// longer to make than the lock to take.
func (c *counter) acquire(ctx context.Context) error {
	if l, ok := c.lock.(tryLocker); ok {
		if ok, err := l.TryLock(); ok || err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	return c.lock.Lock(ctx)
}

// under runs f for the chunk of h while the lock is held.
func (c *counter) under(ctx context.Context, chunks *chunks, h *serde.Address, held bool,
	f func(c *counter, payload []byte)) (err error) {
	if err := c.acquire(ctx); err != nil {
		return fmt.Errorf("%w: %d:%d: a process may have died with the readers' lock: %w",
			ErrNotCounted, h.Address, h.ID, err)
	}
	defer func() {
		if e := c.lock.Unlock(); e != nil {
			err = errors.Join(err, e)
		}
	}()
	// The id is compared again, which upstream does not do, so that a handle that
	// is stale by now does not count on another object.
	chunk, err := chunks.locate(h, held)
	if err != nil {
		return err
	}
	f(c, chunk.Payload)
	return nil
}

func (c *counter) read(chunks *chunks, h *serde.Address, held bool) error {
	mem.Fence() // what was read of the chunk stays before the count
	return c.under(context.Background(), chunks, h, held, func(_ *counter, payload []byte) { addRead(payload) })
}

// touch is the reader's touch of vLLM 0.12 to 0.31.
func (c *counter) touch(ctx context.Context, chunks *chunks, h *serde.Address) error {
	return c.under(ctx, chunks, h, false, func(c *counter, payload []byte) {
		if readCount(payload) >= c.readers {
			addRead(payload)
		}
	})
}

// touch is the touch of whoever has a lock, a reader or such a writer.
func touch(ctx context.Context, chunks *chunks, c *counter, h *serde.Address, verify func() error) error {
	switch chunks.options.Generation.Counting {
	case pycompat.CountTouch:
		if c == nil {
			return nil
		}
		return chunks.guard(h, func() error { return c.touch(ctx, chunks, h) })
	case pycompat.CountPerAddress:
		if err := verify(); err != nil {
			return err
		}
		return chunks.guard(h, func() error {
			_, err := chunks.locate(h, false)
			return err
		})
	}
	return nil
}
