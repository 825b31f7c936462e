package s3

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/ringcache/ringcache/tier"
)

// miss returns the error for the caller about what was read of an object, and removes the object if it is
// damaged. It leaves alone what only begins like an object, and what is another program's.
func (l *Level) miss(ctx context.Context, k tier.Key, key, etag string, err error) error {
	var own callerError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errMissing), errors.Is(err, errChanged):
		if l.pending.Has(k) {
			return isPending(k)
		}
		return missing(k)
	case errors.As(err, new(errForeign)):
		l.corrupt.Add(1)
		return foreign(k, err)
	case errors.As(err, new(errUnstable)):
		l.corrupt.Add(1)
		return corrupt(k, err)
	case errors.As(err, new(errDamaged)):
		l.corrupt.Add(1)
		l.remove(ctx, key, etag)
		return corrupt(k, err)
	case errors.As(err, &own):
		return own.error
	}
	return err
}

// isMiss reports whether an error is that of an object that is not there, or can't be read.
func isMiss(err error) bool {
	return errors.Is(err, errMissing) || errors.Is(err, errChanged) || errors.As(err, new(errForeign)) ||
		errors.As(err, new(errDamaged)) || errors.As(err, new(errUnstable))
}

func foreign(k tier.Key, err error) error {
	return fmt.Errorf("tier/s3: object %v: another program's object is in its place: %w: %w", k, err, tier.ErrNotFound)
}

func corrupt(k tier.Key, err error) error {
	return fmt.Errorf("tier/s3: object %v: %w: %w: %w", k, err, tier.ErrNotFound, tier.ErrCorrupt)
}

// errUnstable is damage of which two reads had different wrong bytes: the way changes them, or the memory of
// this machine, and the object may be right.
type errUnstable struct{ error }

func (e errUnstable) Error() string { return e.error.Error() + ", and differently each time" }

// verifyHead reads a head once more that was damaged, and returns the error if it is so again, and else an
// errUnstable.
func (l *Level) verifyHead(ctx context.Context, key string, why error) error {
	_, _, err := l.readStat(ctx, key)
	if err == nil || err.Error() != why.Error() {
		return errUnstable{why}
	}
	return why
}

// verify reads an object once more whose bytes had a wrong checksum, and returns an errDamaged if they have the
// same again, and else an errUnstable.
func (l *Level) verify(ctx context.Context, key, etag string, wrong uint32) error {
	why, sum := damaged("the checksum of its bytes is wrong"), uint32(0)
	err := l.do(ctx, largest, func(ctx context.Context) error {
		return l.readRange(ctx, key, etag, 0, largest, func(body io.Reader, total int64, _ string) error {
			if _, err := l.readHead(body, key, total, maxHead); err != nil {
				return err
			}
			h := crc32.New(castagnoli)
			_, err := io.Copy(h, body)
			sum = h.Sum32()
			return err
		})
	})
	if err != nil || sum != wrong {
		why = errUnstable{why}
	}
	return why
}

// remove removes a damaged object, unless it was replaced: what can't be removed is found again. A store that
// does not know conditions for DELETE removes what is there, which is a miss and no wrong byte.
func (l *Level) remove(ctx context.Context, key, etag string) {
	if etag != "" {
		ctx = context.WithValue(ctx, ifMatch{}, etag)
	}
	_ = l.delete(ctx, key)
}
