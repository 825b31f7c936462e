package s3

import (
	"context"
	"errors"

	"github.com/minio/minio-go/v7"

	"github.com/ringcache/ringcache/tier"
)

// Delete removes objects, several at a time. It leaves another program's object in an object's place, which is
// tier.ErrNotFound.
func (l *Level) Delete(ctx context.Context, wanted []tier.Key) []error {
	answers := make([]error, len(wanted))
	done, err := l.each(ctx, len(wanted), func(i int) {
		_, etag, err := l.lookUp(ctx, wanted[i])
		key := l.settings.keyOf(wanted[i])
		if err == nil {
			if err = l.delete(ctx, key); err == nil {
				return
			}
		}
		if errors.As(err, new(errDamaged)) || errors.As(err, new(errUnstable)) { // S3 does not say whether it was there
			if answers[i] = l.delete(ctx, key); answers[i] == nil {
				return
			}
		}
		answers[i] = l.miss(ctx, wanted[i], key, etag, err)
	})
	for i := done; i < len(wanted); i++ {
		answers[i] = err
	}
	return answers
}

// delete removes an object of the bucket, if there is one.
func (l *Level) delete(ctx context.Context, key string) error {
	return l.do(ctx, 0, func(ctx context.Context) error {
		return l.client.RemoveObject(ctx, l.settings.bucket, key, minio.RemoveObjectOptions{})
	})
}
