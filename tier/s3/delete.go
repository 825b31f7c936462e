package s3

import (
	"context"
	"errors"
	"hash/maphash"

	"github.com/minio/minio-go/v7"

	"github.com/ringcache/ringcache/tier"
)

// Delete removes objects, several at a time. It leaves another program's object in an object's place, which is
// tier.ErrNotFound. S3 does not say whether a DELETE removed something, so each object is looked up first: when
// two clients of a store delete the same one at the same time, both may be told that they did.
func (l *Level) Delete(ctx context.Context, wanted []tier.Key) []error {
	answers := make([]error, len(wanted))
	var first, again []int
	seen := map[tier.Key]bool{}
	for i, k := range wanted {
		if seen[k] {
			again = append(again, i)
		} else {
			first = append(first, i)
		}
		seen[k] = true
	}
	for _, places := range [][]int{first, again} { // what is in the batch again was removed by then
		done, err := l.each(ctx, len(places), func(i int) { answers[places[i]] = l.deleteObject(ctx, wanted[places[i]]) })
		for _, i := range places[done:] {
			answers[i] = err
		}
	}
	return answers
}

func (l *Level) deleteObject(ctx context.Context, k tier.Key) error {
	lock := &l.deletes[maphash.Comparable(deleteSeed, k)%uint64(len(l.deletes))]
	lock.Lock()
	defer lock.Unlock()
	key := l.settings.keyOf(k)
	_, etag, err := l.lookUp(ctx, k)
	if err == nil || errors.As(err, new(errDamaged)) || errors.As(err, new(errUnstable)) {
		return l.delete(ctx, key)
	}
	return l.miss(ctx, k, key, etag, err)
}

var deleteSeed = maphash.MakeSeed()

// delete removes an object of the bucket, if there is one.
func (l *Level) delete(ctx context.Context, key string) error {
	return l.do(ctx, 0, func(ctx context.Context) error {
		return l.client.RemoveObject(ctx, l.settings.bucket, key, minio.RemoveObjectOptions{})
	})
}
