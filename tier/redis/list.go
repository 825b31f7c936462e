package redis

import (
	"context"
	"errors"
	"hash/maphash"
	"iter"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/ringcache/ringcache/tier"
)

// List lists objects by SCAN, of every master of a cluster, and describes each. The server steps through all
// of its keys, a thousand at a time, so that other clients are served in between. Damaged objects are not in
// the list. List removes nothing.
func (l *Level) List(ctx context.Context, space string) iter.Seq2[tier.Object, error] {
	return func(yield func(tier.Object, error) bool) {
		begin, end, ok := l.settings.Layout.match(space)
		if !ok {
			return
		}
		servers, err := l.servers(ctx)
		if err != nil {
			yield(tier.Object{}, err)
			return
		}
		// SCAN may return a key twice. 8 bytes for each are enough to see that.
		seen, seed := map[uint64]struct{}{}, maphash.MakeSeed()
		pattern := escapePattern.Replace(l.settings.Prefix+begin) + "*" + end
		for _, c := range servers {
			for cursor, last := uint64(0), false; !last; {
				var keys []tier.Key
				if keys, cursor, err = l.scan(ctx, c, cursor, pattern, seen, seed); err != nil {
					yield(tier.Object{}, err)
					return
				}
				last = cursor == 0
				for i, f := range l.describe(ctx, keys, l.missOnly) {
					switch {
					case errors.Is(f.Err, tier.ErrNotFound), errors.Is(f.Err, tier.ErrPending): // evicted meanwhile
					case f.Err != nil:
						yield(tier.Object{}, f.Err)
						return
					case space != "" && keys[i].Space != space:
					case !yield(f.Object, nil):
						return
					}
				}
			}
		}
	}
}

// escapePattern makes text match itself.
var escapePattern = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`, "^", `\^`, "-", `\-`)

// servers returns the servers that have keys.
func (l *Level) servers(ctx context.Context) ([]goredis.Cmdable, error) {
	leave, err := l.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	var servers []goredis.Cmdable
	err = l.eachServer(ctx, func(_ context.Context, c goredis.Cmdable) error {
		servers = append(servers, c)
		return nil
	})
	return servers, err
}

// scan returns the objects' keys of one step, without those that were seen.
func (l *Level) scan(ctx context.Context, c goredis.Cmdable, cursor uint64, pattern string, seen map[uint64]struct{},
	seed maphash.Seed) ([]tier.Key, uint64, error) {
	leave, err := l.enter(ctx)
	if err != nil {
		return nil, 0, err
	}
	defer leave()
	limited, cancel := l.limited(ctx, 0)
	defer cancel()
	texts, next, err := c.Scan(limited, cursor, pattern, 1000).Result()
	if err != nil {
		return nil, 0, explain(ctx, err)
	}
	var keys []tier.Key
	for _, text := range texts {
		text, ok := strings.CutPrefix(text, l.settings.Prefix)
		if !ok {
			continue
		}
		k, ok := l.settings.Layout.name(text)
		if !ok {
			continue
		}
		h := maphash.String(seed, text)
		if _, double := seen[h]; !double {
			seen[h] = struct{}{}
			keys = append(keys, k)
		}
	}
	return keys, next, nil
}
