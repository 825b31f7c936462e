package folder

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"iter"

	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/internal/slots"
)

// List implements [tier.Level]. It searches the whole folder, and reads the head of each file. A file that can't be read is
// an error at the end, after all objects.
func (l *Level) List(ctx context.Context, space string) iter.Seq2[tier.Object, error] {
	return func(yield func(tier.Object, error) bool) {
		var failed error
		stopped := errors.New("the caller has enough")
		// No call of the level spans the yields, in which the caller may close it.
		err := l.walk(ctx, ".", func(paths []string) error {
			for _, h := range l.heads(ctx, paths) {
				switch {
				case errors.Is(h.Err, tier.ErrNotFound), h.Err == nil && space != "" && h.Object.Space != space:
				case ctx.Err() != nil, errors.Is(h.Err, fs.ErrClosed):
					return cmp.Or(ctx.Err(), h.Err)
				case h.Err != nil:
					failed = h.Err
				case !yield(h.Object, nil):
					return stopped
				}
			}
			return nil
		})
		switch {
		case errors.Is(err, stopped):
		case err != nil:
			yield(tier.Object{}, explain(l.path, "listing the objects", err))
		case failed != nil:
			yield(tier.Object{}, explain(l.path, "listing the objects", failed))
		}
	}
}

// heads describes the objects at paths.
func (l *Level) heads(ctx context.Context, paths []string) []tier.Found {
	heads := make([]tier.Found, len(paths))
	leave, err := l.enter()
	if err != nil {
		return []tier.Found{{Err: err}}
	}
	defer leave()
	slots.Each(len(paths), l.o.Workers, func(i int) {
		heads[i].Object, heads[i].Err = l.head(ctx, paths[i])
	})
	return heads
}

func (l *Level) head(ctx context.Context, path string) (tier.Object, error) {
	o, err := l.begin(ctx)
	if err != nil {
		return tier.Object{}, err
	}
	defer o.end()
	found, err := o.open(path, headBytes)
	if errors.Is(err, tier.ErrCorrupt) {
		err = o.missDamaged(path, found.fresh, err)
	}
	return found.head.Object, err
}
