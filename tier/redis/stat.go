package redis

import (
	"context"
	"errors"
	"fmt"

	"github.com/ringcache/ringcache/tier"
)

// Stat describes objects. The server counts that as a use. Damaged objects are removed.
func (l *Level) Stat(ctx context.Context, wanted []tier.Key) []tier.Found {
	return l.describe(ctx, wanted, l.miss)
}

// describe looks at objects, and has a function return the error about each that was not found.
func (l *Level) describe(ctx context.Context, wanted []tier.Key,
	miss func(context.Context, tier.Key, *lookup) error) []tier.Found {
	answers := make([]tier.Found, len(wanted))
	done, err := l.pieces(ctx, len(wanted), func(from, to int) {
		found, release := l.lookUp(ctx, wanted[from:to], false)
		defer release()
		for i := range found {
			if found[i].err != nil {
				answers[from+i].Err = miss(ctx, wanted[from+i], &found[i])
			} else {
				answers[from+i].Object = found[i].entry.object
			}
		}
	})
	for i := done; i < len(wanted); i++ {
		answers[i].Err = err
	}
	return answers
}

// miss returns the error for the caller about what was not found, and removes it if it is damaged.
func (l *Level) miss(ctx context.Context, k tier.Key, f *lookup) error {
	var d errDamaged
	if errors.As(f.err, &d) {
		return l.removeDamaged(ctx, k, f.keys, d.reason)
	}
	return l.missOnly(ctx, k, f)
}

// missOnly is miss, and removes nothing.
func (l *Level) missOnly(_ context.Context, k tier.Key, f *lookup) error {
	switch {
	case errors.Is(f.err, errMissing) && l.pending.Has(k):
		return isPending(k)
	case errors.Is(f.err, errMissing), errors.As(f.err, new(errDamaged)):
		return missing(k)
	case errors.As(f.err, new(errForeign)):
		return fmt.Errorf("tier/redis: object %v: another program's value: %w: %w", k, f.err, tier.ErrNotFound)
	}
	return f.err
}

func missing(k tier.Key) error { return fmt.Errorf("tier/redis: object %v: %w", k, tier.ErrNotFound) }

func isPending(k tier.Key) error {
	return fmt.Errorf("tier/redis: object %v: another call is storing it: %w", k, tier.ErrPending)
}
