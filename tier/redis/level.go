package redis

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"sync"
	"sync/atomic"

	goredis "github.com/redis/go-redis/v9"

	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/internal/remote"
)

// A Level is a [tier.Level] of a Redis or Valkey server. Its methods may be called from any goroutine.
type Level struct {
	settings settings
	client   goredis.UniversalClient
	calls    *remote.Calls // and the bytes of objects in memory

	pending remote.Pending
	corrupt atomic.Int64
}

var _ tier.Level = (*Level)(nil)

// Open makes a level. It fails with fs.ErrInvalid if the options are wrong or don't fit the server, and with
// fs.ErrPermission if the server refuses user or password. A server that does not answer is not an error:
// calls fail with tier.ErrUnavailable until it answers. [Level.Ping] reports that.
func Open(ctx context.Context, o Options) (*Level, error) {
	s, err := o.resolve()
	if err != nil {
		return nil, err
	}
	l := &Level{settings: s, calls: remote.NewCalls(s.Connections, s.MaxBytesInFlight, errClosed)}
	l.client = l.newClient()
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

// Ping asks the server, or all masters of the cluster, for an answer, and reports why there is none, as a
// tier.ErrUnavailable.
func (l *Level) Ping(ctx context.Context) error {
	leave, err := l.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return l.eachServer(ctx, func(ctx context.Context, c goredis.Cmdable) error {
		ctx, cancel := l.limited(ctx, 0)
		defer cancel()
		err := c.Ping(ctx).Err()
		if err == nil && !l.settings.cluster {
			err = l.checkAlone(ctx, c)
		}
		return err
	})
}

// checkAlone returns an error if the server is one of a cluster, and so has only a part of the keys.
func (l *Level) checkAlone(ctx context.Context, c goredis.Cmdable) error {
	pipe := c.Pipeline()
	for i := range 32 {
		pipe.Exists(ctx, l.settings.Prefix+strconv.Itoa(i))
	}
	cmds, _ := pipe.Exec(ctx)
	for _, cmd := range cmds {
		if goredis.HasErrorPrefix(cmd.Err(), "MOVED") { // other errors are about these keys
			return invalid("this is a server of a cluster: write redis+cluster:// in the URL: %v", cmd.Err())
		}
	}
	return nil
}

// eachServer calls fn with every server that has keys, and explains its error. It stops at the first one.
func (l *Level) eachServer(ctx context.Context, fn func(ctx context.Context, c goredis.Cmdable) error) error {
	cluster, ok := l.client.(*goredis.ClusterClient)
	if !ok {
		return explain(ctx, fn(ctx, l.client))
	}
	masters, err := l.masters(ctx, cluster)
	for _, c := range masters {
		if err == nil {
			err = fn(ctx, c)
		}
	}
	return explain(ctx, err)
}

// masters returns the clients of the masters of a cluster.
func (l *Level) masters(ctx context.Context, cluster *goredis.ClusterClient) ([]*goredis.Client, error) {
	ctx, cancel := l.limited(ctx, 0)
	defer cancel()
	var mu sync.Mutex
	var masters []*goredis.Client
	err := cluster.ForEachMaster(ctx, func(_ context.Context, c *goredis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		masters = append(masters, c)
		return nil
	})
	return masters, err
}

// Name returns "redis".
func (l *Level) Name() string { return "redis" }

// Client returns the client of the level, and the prefix of its keys, for what else is kept in the same server under
// keys of its own. A call has the limits of the level: its time, and what an answer may have. It ends before Close.
func (l *Level) Client() (c goredis.UniversalClient, prefix string) {
	return l.client, l.settings.Prefix
}

// Usage reports only the damage that was found. The number of objects, their bytes and the evictions are -1:
// only the server has them.
func (l *Level) Usage() tier.Usage {
	return tier.Usage{Objects: -1, Bytes: -1, Evicted: -1, Corrupt: l.corrupt.Load()}
}

// Close ends the level and waits for its calls. The objects stay.
func (l *Level) Close() error {
	if !l.calls.Close() {
		return nil
	}
	if err := l.client.Close(); err != nil {
		return fmt.Errorf("tier/redis: %w", err)
	}
	return nil
}

var errClosed = fmt.Errorf("tier/redis: the level is closed: %w", fs.ErrClosed)

// enter begins a call: it counts the call, and waits for a slot. leave ends the call.
func (l *Level) enter(ctx context.Context) (leave func(), err error) { return l.calls.Enter(ctx) }

// limited gives one round trip its time.
func (l *Level) limited(ctx context.Context, bytes int64) (context.Context, context.CancelFunc) {
	return l.settings.limited(ctx, bytes)
}

// reserve waits for a part of MaxBytesInFlight, for bytes in memory. A larger object reserves all of it.
func (l *Level) reserve(ctx context.Context, bytes int64) (release func(), err error) {
	return l.calls.Reserve(ctx, bytes)
}
