package s3

import (
	"context"
	"errors"
	"io"

	"github.com/ringcache/ringcache/tier"
)

// statPart is what Stat reads of an object: the heads of most.
const statPart = 1 << 10

// Stat describes objects. It reads their heads, with a request for each, several at a time. Objects whose
// head is damaged are removed.
func (l *Level) Stat(ctx context.Context, wanted []tier.Key) []tier.Found {
	answers := make([]tier.Found, len(wanted))
	done, err := l.each(ctx, len(wanted), func(i int) {
		e, etag, err := l.lookUp(ctx, wanted[i])
		answers[i].Object = e.object
		if err != nil {
			answers[i] = tier.Found{Err: l.miss(ctx, wanted[i], l.settings.keyOf(wanted[i]), etag, err)}
		}
	})
	for i := done; i < len(wanted); i++ {
		answers[i].Err = err
	}
	return answers
}

// lookUp reads the head of an object. The error is errMissing, an errDamaged, errUnstable or errForeign, or one
// for the caller.
func (l *Level) lookUp(ctx context.Context, k tier.Key) (entry, string, error) {
	if err := k.Validate(); err != nil {
		return entry{}, "", err
	}
	e, etag, err := l.headOf(ctx, l.settings.keyOf(k))
	if err == nil && e.object.Key != k {
		err = errForeign{"it is another object"}
	}
	return e, etag, err
}

// headOf reads the head of an object of the bucket, and twice if it is damaged.
func (l *Level) headOf(ctx context.Context, key string) (entry, string, error) {
	e, etag, err := l.readStat(ctx, key)
	if !errors.As(err, new(errDamaged)) {
		return e, etag, err
	}
	e, etag, again := l.readStat(ctx, key)
	if errors.As(again, new(errDamaged)) && again.Error() != err.Error() {
		again = errUnstable{again}
	}
	return e, etag, again
}

func (l *Level) readStat(ctx context.Context, key string) (e entry, etag string, err error) {
	for _, n := range []int64{statPart, maxHead} {
		err = l.do(ctx, n, func(ctx context.Context) error {
			return l.readRange(ctx, key, "", 0, n, func(body io.Reader, total int64, tag string) (err error) {
				etag = tag
				e, err = l.readHead(body, key, total, n)
				return err
			})
		})
		if !errors.Is(err, errLongerHead) {
			break
		}
	}
	return e, etag, err
}
