package redis

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"

	goredis "github.com/redis/go-redis/v9"

	"github.com/ringcache/ringcache/tier"
)

// removeDamaged removes a damaged object, and returns the error for the caller. It reads the object again in
// a WATCH: a value that was evicted or replaced between two reads looked damaged and was not. It removes the
// key of the head only. In a layout with two keys no reader looks for the bytes without the head, and the
// bytes may be those of another writer, which writes the head next.
func (l *Level) removeDamaged(ctx context.Context, k tier.Key, at keys, reason string) error {
	bad := false
	err := l.client.Watch(mark(ctx, noRetryMark{}), func(tx *goredis.Tx) (err error) {
		if bad, err = l.isDamaged(ctx, tx, k, at); !bad {
			return err
		}
		limited, cancel := l.limited(mark(ctx, noRetryMark{}), 0)
		defer cancel()
		_, err = tx.TxPipelined(limited, func(pipe goredis.Pipeliner) error {
			pipe.Unlink(limited, at.head)
			return nil
		})
		return err
	}, at.head)
	if errors.Is(err, goredis.TxFailedErr) || err == nil && !bad {
		return missing(k)
	}
	// A value that could not be removed is found again by the next call.
	l.corrupt.Add(1)
	return fmt.Errorf("tier/redis: object %v: %s: %w: %w", k, reason, tier.ErrNotFound, tier.ErrCorrupt)
}

// isDamaged looks at an object again, all of its bytes if they have a checksum. The head's key is watched by
// tx.
func (l *Level) isDamaged(ctx context.Context, tx *goredis.Tx, k tier.Key, at keys) (bool, error) {
	ctx = mark(ctx, noRetryMark{})
	layout := l.settings.Layout
	read := func(offset int64, into []byte) (int, error) {
		limited, cancel := l.limited(ctx, int64(len(into)))
		defer cancel()
		cmd := getRange(limited, at.head, into, offset)
		err := tx.Process(limited, cmd)
		return cmd.Val(), err
	}
	head := make([]byte, layout.probe(false))
	n, err := read(0, head)
	if isWrongType(err) {
		return !layout.shared(), nil
	}
	if err != nil {
		return false, err
	}
	limited, cancel := l.limited(ctx, 0)
	defer cancel()
	var body *goredis.IntCmd
	if at.body == at.head {
		body = tx.StrLen(limited, at.body)
	} else {
		body = l.client.StrLen(limited, at.body) // perhaps of another server
	}
	if err := body.Err(); isWrongType(err) {
		return !layout.shared(), nil
	} else if err != nil {
		return false, err
	}
	if body.Val() < 0 || body.Val() > largest {
		return !layout.shared(), nil
	}
	e, err := layout.parse(k, head[:n], body.Val())
	var longer errLongerHead
	if errors.As(err, &longer) {
		head = make([]byte, longer)
		if n, err = read(0, head); err != nil {
			return false, err
		}
		e, err = layout.parse(k, head[:n], body.Val())
	}
	if err != nil {
		return errors.As(err, new(errDamaged)), nil
	}
	if !e.hasSum {
		return false, nil
	}
	sum, part := uint32(0), make([]byte, min(e.object.Size, streamPart))
	for done := int64(0); done < e.object.Size; {
		part = part[:min(int64(len(part)), e.object.Size-done)]
		n, err := read(e.offset+done, part)
		if err != nil {
			return false, err
		}
		if n != len(part) {
			return true, nil // shorter than its head says
		}
		sum = crc32.Update(sum, castagnoli, part[:n])
		done += int64(n)
	}
	return sum != e.sum, nil
}
