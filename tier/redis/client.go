package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// newClient makes the client of the level. It dials nothing yet.
func (l *Level) newClient() goredis.UniversalClient {
	s := &l.settings
	if s.cluster {
		var cluster *goredis.ClusterClient
		// While a server is down the cluster may give its slots to a replica, which only the other servers
		// know. One question for all breakers in each reloadPause is enough.
		var reloaded atomic.Int64
		reload := func(ctx context.Context) {
			now, last := time.Now().UnixNano(), reloaded.Load()
			if now-last >= int64(reloadPause) && reloaded.CompareAndSwap(last, now) {
				_, _ = l.masters(ctx, cluster)
			}
		}
		cluster = goredis.NewClusterClient(&goredis.ClusterOptions{
			Addrs:     s.addrs,
			NewClient: func(o *goredis.Options) *goredis.Client { return l.newNode(o.Addr, nil, reload) },
			// A slot that is being moved takes two redirections, and neither waits.
			MaxRedirects:           4,
			MinRetryBackoff:        time.Millisecond,
			MaxRetryBackoff:        8 * time.Millisecond,
			ContextTimeoutEnabled:  true,
			ReadTimeout:            -1,
			WriteTimeout:           -1,
			DisableRoutingPolicies: true, // it would ask for COMMAND
			// A moved slot shows by a redirection, and a server that is down has a breaker that reloads the
			// state.
			ClusterStateReloadInterval: 10 * time.Minute,
		})
		return cluster
	}
	if s.master != "" {
		return l.newNode("master "+s.master, func(ctx context.Context) (string, error) {
			return askSentinels(ctx, s)
		}, nil)
	}
	return l.newNode(s.addrs[0], nil, nil)
}

// newNode makes the client of one server, with its breaker. If resolve is not nil, it finds the address for
// each connection, and addr is only a name for errors. reload, if not nil, is called while the server is
// down.
func (l *Level) newNode(addr string, resolve func(context.Context) (string, error),
	reload func(context.Context)) *goredis.Client {
	s := &l.settings
	conns := &connections{settings: s, resolve: resolve}
	c := goredis.NewClient(&goredis.Options{
		Network:  s.network,
		Addr:     addr,
		Dialer:   conns.dial,
		Protocol: 2, // enough for all commands, and every server has it
		Username: s.User,
		Password: s.Password,
		DB:       s.database,

		// Every call has a context with a deadline, and the breaker repeats what may be repeated.
		ContextTimeoutEnabled: true,
		ReadTimeout:           -1,
		WriteTimeout:          -1,
		DialTimeout:           s.Timeout,
		DialerRetries:         1,
		MaxRetries:            -1,

		// Calls wait for a slot of the level and never in the pool. A call that removes damage needs two
		// connections; four are for the breaker and for the client's own questions about a cluster.
		PoolSize:         2*s.Connections + 4,
		PoolTimeout:      time.Hour,
		PipelinePoolSize: -1,
		ReadBufferSize:   connBuffer,
		WriteBufferSize:  connBuffer,

		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	c.AddHook(newBreaker(s, conns, c, l.calls.Start, reload))
	return c
}

// reloadPause is the shortest time between two questions which server has which slots. The client waits that
// long, too.
const reloadPause = 200 * time.Millisecond

// connBuffer is the size of the buffers of a connection. Longer values are read straight into their memory.
const connBuffer = 64 << 10

// askSentinels returns the address of the master. The Sentinels are asked one after the other, each for its
// share of the time. It is asked anew for each connection, since connections end when the master changes.
func askSentinels(ctx context.Context, s *settings) (string, error) {
	failures := make([]error, 0, len(s.addrs))
	for _, addr := range s.addrs {
		master, err := askSentinel(ctx, s, addr)
		if err == nil {
			return master, nil
		}
		failures = append(failures, fmt.Errorf("asking Sentinel %s: %w", addr, err))
	}
	return "", errors.Join(failures...)
}

// askSentinel asks one Sentinel, over a connection of its own.
func askSentinel(ctx context.Context, s *settings, addr string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout/time.Duration(len(s.addrs)))
	defer cancel()
	conns := &connections{settings: s}
	c := goredis.NewSentinelClient(&goredis.Options{
		Addr:                     addr,
		Dialer:                   conns.dial,
		Protocol:                 2,
		Username:                 s.SentinelUser,
		Password:                 s.SentinelPassword,
		ContextTimeoutEnabled:    true,
		DialerRetries:            1,
		MaxRetries:               -1,
		PoolSize:                 1,
		PipelinePoolSize:         -1,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	defer c.Close()
	parts, err := c.GetMasterAddrByName(ctx, s.master).Result()
	switch {
	case errors.Is(err, goredis.Nil):
		return "", fmt.Errorf("no master of the name %q: check the path of the URL", s.master)
	case err != nil:
		return "", err
	case len(parts) != 2:
		return "", fmt.Errorf("an answer of %d parts: %s", len(parts), strings.Join(parts, " "))
	}
	return net.JoinHostPort(parts[0], parts[1]), nil
}
