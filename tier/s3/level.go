package s3

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/minio/minio-go/v7"

	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/internal/remote"
)

// A Level is a [tier.Level] of a bucket. Its methods may be called from any goroutine.
type Level struct {
	settings  settings
	client    *minio.Core
	transport *http.Transport
	calls     *remote.Calls // round trips at a time, and the bytes of objects in memory
	breaker   *remote.Breaker
	retries   retries

	pending remote.Pending
	deletes [64]sync.Mutex // of deletions of the same object, by its hash
	corrupt atomic.Int64
	// unconditional is that the store refused If-None-Match: it is asked what it has before each write.
	unconditional atomic.Bool
}

var _ tier.Level = (*Level)(nil)

// Open makes a level. It fails with fs.ErrInvalid if the options are wrong or don't fit the store, as one
// without the bucket, and with fs.ErrPermission if the store refuses the credentials or there are none. A
// store that does not answer is not an error: calls fail with tier.ErrUnavailable until it answers.
// [Level.Ping] reports that.
func Open(ctx context.Context, o Options) (*Level, error) {
	s, err := o.resolve()
	if err != nil {
		return nil, err
	}
	l := &Level{settings: s, calls: remote.NewCalls(s.Connections, s.MaxBytesInFlight, errClosed), retries: retries{tokens: budget}}
	if l.client, l.transport, err = newClient(&s); err != nil {
		return nil, err
	}
	l.breaker = &remote.Breaker{
		Failures: s.Failures, Retry: s.Retry, Start: l.calls.Start, Ping: l.probe,
		Explain:    func(err error) error { return remote.ServerDown(s.endpoint, err) },
		Disconnect: l.transport.CloseIdleConnections,
	}
	err = l.Ping(ctx)
	if ended := remote.EndOf(ctx); ended != nil || errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrInvalid) {
		l.Close()
		if ended != nil {
			err = ended
		}
		return nil, err
	}
	return l, nil
}

// Ping asks the store for an answer, and reports why there is none, as a tier.ErrUnavailable.
func (l *Level) Ping(ctx context.Context) error {
	leave, err := l.calls.Enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if err := l.breaker.Down(); err != nil {
		return explain(ctx, err)
	}
	return explain(ctx, l.ask(ctx))
}

// Name returns "s3".
func (l *Level) Name() string { return "s3" }

// Usage reports only the damage that was found, and objects of other programs in the place of objects. The
// number of objects, their bytes and the evictions are -1: only the store has them.
func (l *Level) Usage() tier.Usage {
	return tier.Usage{Objects: -1, Bytes: -1, Evicted: -1, Corrupt: l.corrupt.Load()}
}

// Close ends the level and waits for its calls. The objects stay.
func (l *Level) Close() error {
	l.calls.Close()
	l.transport.CloseIdleConnections()
	return nil
}

var errClosed = fmt.Errorf("tier/s3: the level is closed: %w", fs.ErrClosed)

// each calls fn for 0 to n-1, for several at a time if there are slots. It returns the first index for which
// it did not call fn, and why: the context ended, or the level is closed.
func (l *Level) each(ctx context.Context, n int, fn func(i int)) (int, error) {
	if n == 0 {
		return 0, nil
	}
	leave, err := l.calls.Enter(ctx)
	if err != nil {
		return 0, err
	}
	defer leave()
	var next atomic.Int64
	work := func() {
		for remote.EndOf(ctx) == nil {
			i := int(next.Add(1)) - 1
			if i >= n {
				return
			}
			fn(i)
		}
	}
	l.together(n, func(bool) { work() })
	if i := int(next.Load()); i < n {
		return i, remote.EndOf(ctx)
	}
	return n, nil
}

// together calls work, and with helps also from at most n-1 further goroutines, as many as there are slots for.
// A panic is the caller's, whichever goroutine it was in.
func (l *Level) together(n int, work func(helps bool)) {
	var helpers sync.WaitGroup
	var panicked atomic.Value
	for range min(n, l.settings.Connections) - 1 {
		leave, ok := l.calls.TryEnter()
		if !ok {
			break
		}
		helpers.Go(func() {
			defer leave()
			defer func() {
				if v := recover(); v != nil {
					panicked.CompareAndSwap(nil, fmt.Sprint(v))
				}
			}()
			work(true)
		})
	}
	func() {
		defer helpers.Wait()
		work(false)
	}()
	if v := panicked.Load(); v != nil {
		panic(v)
	}
}
