package mmcache

import (
	"context"
	"sync"
)

// joined returns a context that ends with either.
func joined(ctx, stop context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	end := context.AfterFunc(stop, cancel)
	return ctx, func() { end(); cancel() }
}

// lazilyJoined is joined for calls that rarely wait: nothing watches the two contexts
// before the first call of Done. It is not for contexts to be derived from, each of which
// would need a goroutine.
type lazilyJoined struct {
	context.Context
	stop context.Context

	mu   sync.Mutex
	both context.Context
	end  context.CancelFunc
}

func (j *lazilyJoined) Done() <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.both == nil {
		j.both, j.end = joined(j.Context, j.stop)
	}
	return j.both.Done()
}

func (j *lazilyJoined) Err() error {
	if err := j.Context.Err(); err != nil {
		return err
	}
	return j.stop.Err()
}

// close ends what watches.
func (j *lazilyJoined) close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.end != nil {
		j.end()
	}
}
