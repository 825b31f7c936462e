package s3

import (
	"context"
	"iter"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/ringcache/ringcache/tier"
)

// page is how many keys are listed at a time.
const page = 1000

// List lists the objects of a space, or of all. It reads the head of each. What is damaged, or another
// program's, is left out, and stays.
func (l *Level) List(ctx context.Context, space string) iter.Seq2[tier.Object, error] {
	return func(yield func(tier.Object, error) bool) {
		prefix := l.settings.spacePrefix(space)
		for after, more := "", true; more; {
			var keys []string
			var err error
			if keys, more, err = l.listPage(ctx, prefix, after); err != nil {
				yield(tier.Object{}, err)
				return
			}
			if len(keys) == 0 {
				return
			}
			after = keys[len(keys)-1]
			for len(keys) > 0 {
				n := min(len(keys), l.settings.Connections)
				found := make([]*tier.Object, n)
				errs := make([]error, n)
				done, err := l.each(ctx, n, func(i int) { found[i], errs[i] = l.listed(ctx, keys[i], space) })
				for i := range done {
					switch {
					case errs[i] != nil:
						yield(tier.Object{}, errs[i])
						return
					case found[i] != nil && !yield(*found[i], nil):
						return
					}
				}
				if err != nil {
					yield(tier.Object{}, err)
					return
				}
				keys = keys[n:]
			}
		}
	}
}

// listed describes the object of a key, or returns nil if it is none.
func (l *Level) listed(ctx context.Context, key, space string) (*tier.Object, error) {
	if strings.Count(strings.TrimPrefix(key, l.settings.prefix), "/") != 1 {
		return nil, nil
	}
	e, _, err := l.headOf(ctx, key)
	switch {
	case err == nil && (space == "" || e.object.Space == space):
		return &e.object, nil
	case err == nil || isMiss(err):
		return nil, nil
	}
	return nil, err
}

// listPage returns the next keys behind one, and whether there may be more.
func (l *Level) listPage(ctx context.Context, prefix, after string) (keys []string, more bool, err error) {
	leave, err := l.calls.Enter(ctx)
	if err != nil {
		return nil, false, err
	}
	defer leave()
	err = l.do(ctx, 0, func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		keys = nil
		for o := range l.client.ListObjectsIter(ctx, l.settings.bucket, minio.ListObjectsOptions{
			Prefix: prefix, Recursive: true, StartAfter: after, MaxKeys: page}) {
			if o.Err != nil {
				return o.Err
			}
			if o.Key <= after || !strings.HasPrefix(o.Key, prefix) {
				continue // a store that ignores where to begin would be listed for ever
			}
			if keys = append(keys, o.Key); len(keys) == page {
				return nil
			}
		}
		return nil
	})
	return keys, len(keys) == page, err
}
