package redis

import (
	"context"

	goredis "github.com/redis/go-redis/v9"

	"github.com/ringcache/ringcache/tier"
)

// Delete removes the values under the keys of objects, also foreign ones. If a connection breaks meanwhile,
// what has just been removed may be reported as tier.ErrNotFound.
func (l *Level) Delete(ctx context.Context, wanted []tier.Key) []error {
	answers := make([]error, len(wanted))
	done, err := l.pieces(ctx, len(wanted), func(from, to int) {
		l.deletePiece(ctx, wanted[from:to], answers[from:to])
	})
	for i := done; i < len(wanted); i++ {
		answers[i] = err
	}
	return answers
}

func (l *Level) deletePiece(ctx context.Context, wanted []tier.Key, answers []error) {
	heads := make([]*goredis.IntCmd, len(wanted))
	bodies := make([]*goredis.IntCmd, len(wanted))
	pipe, after := l.client.Pipeline(), l.client.Pipeline()
	for i, k := range wanted {
		at, err := l.settings.Layout.keys(k)
		if err != nil {
			answers[i] = err
			if k.Validate() == nil { // the layout has no such objects
				answers[i] = missing(k)
			}
			continue
		}
		heads[i] = pipe.Unlink(ctx, l.settings.Prefix+at.head)
		if at.body != at.head {
			bodies[i] = after.Unlink(ctx, l.settings.Prefix+at.body)
		}
	}
	l.exec(ctx, pipe, 0)
	l.exec(ctx, after, 0) // the head went first: no reader looks for bytes without a head
	for i, k := range wanted {
		if answers[i] != nil {
			continue
		}
		switch {
		case heads[i].Err() != nil:
			answers[i] = explain(ctx, heads[i].Err())
		case heads[i].Val() == 0:
			answers[i] = missing(k)
		case bodies[i] != nil && bodies[i].Err() != nil:
			answers[i] = explain(ctx, bodies[i].Err())
		}
	}
}
