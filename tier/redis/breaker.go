package redis

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/ringcache/ringcache/tier/internal/remote"
)

// breaker is the circuit breaker of one server, as a hook of the server's client. The probe of its Breaker sends
// PING, also while the server is up but suspect, after a broken connection or a short deadline.
type breaker struct {
	*remote.Breaker
	settings *settings
	conns    *connections
	client   *goredis.Client
}

// newBreaker makes the breaker of a client. start runs goroutines that Level.Close waits for. reload, if not
// nil, makes the client of a cluster ask which server has the keys of this one now.
func newBreaker(s *settings, conns *connections, client *goredis.Client, start func(func(context.Context)) bool,
	reload func(context.Context)) *breaker {
	b := &breaker{settings: s, conns: conns, client: client}
	b.Breaker = &remote.Breaker{
		Failures: s.Failures, Retry: s.Retry, Start: start, Ping: b.ping, Failed: reload,
		Explain:    func(err error) error { return remote.ServerDown(client.Options().Addr, err) },
		Disconnect: func() { conns.close(time.Now()) },
	}
	return b
}

// Marks in contexts.
type (
	insideMark         struct{} // this call is part of one that a breaker let through
	noRetryMark        struct{} // what was sent once must not be sent again
	callerDeadlineMark struct{} // the deadline is the caller's, and says nothing about the server
	limitedMark        struct{} // the time limit of a round trip is in the deadline
)

func marked(ctx context.Context, mark any) bool { return ctx.Value(mark) != nil }

func mark(ctx context.Context, mark any) context.Context { return context.WithValue(ctx, mark, true) }

// DialHook leaves connections as they are.
func (b *breaker) DialHook(next goredis.DialHook) goredis.DialHook { return next }

// ProcessHook sends one command through the breaker.
func (b *breaker) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		if marked(ctx, insideMark{}) {
			return next(ctx, cmd)
		}
		return b.call(ctx, []goredis.Cmder{cmd}, func(ctx context.Context) error { return next(ctx, cmd) })
	}
}

// ProcessPipelineHook sends a pipeline through the breaker.
func (b *breaker) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		if marked(ctx, insideMark{}) {
			return next(ctx, cmds)
		}
		return b.call(ctx, cmds, func(ctx context.Context) error { return next(ctx, cmds) })
	}
}

// call calls next, unless the server is down. When a connection broke it calls next once more: connections of
// the pool break when the server was restarted, and a new one may work.
func (b *breaker) call(ctx context.Context, cmds []goredis.Cmder, next func(context.Context) error) error {
	if err := b.Down(); err != nil {
		for _, c := range cmds {
			c.SetErr(err)
		}
		return err
	}
	if !marked(ctx, limitedMark{}) { // a command that the client sends for itself has no time limit yet
		var cancel context.CancelFunc
		ctx, cancel = b.settings.limited(ctx, 0)
		defer cancel()
	}
	inside := mark(ctx, insideMark{})
	began := time.Now()
	err := next(inside)
	if isBroken(failure(err, cmds)) && ctx.Err() == nil && b.Down() == nil {
		b.conns.close(began) // the other old ones will be broken, too
		if marked(ctx, noRetryMark{}) {
			b.Suspect()
			return err
		}
		err = next(inside)
	}
	b.report(ctx, failure(err, cmds))
	return err
}

// failure returns an error of the server or of the connection, and nil if the server has answered, even with
// an error.
func failure(err error, cmds []goredis.Cmder) error {
	if fails(err) {
		return err
	}
	for _, c := range cmds {
		if err := c.Err(); fails(err) {
			return err
		}
	}
	return nil
}

func fails(err error) bool {
	var answer goredis.Error
	switch {
	case err == nil:
		return false
	case goredis.IsAuthError(err): // each further call would open a connection only to be refused
		return true
	case errors.As(err, &answer):
		return false
	}
	return true
}

// isBroken reports whether an established connection broke.
func isBroken(err error) bool {
	var dial *dialError
	if err == nil || errors.As(err, &dial) {
		return false
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// report counts how a call ended.
func (b *breaker) report(ctx context.Context, err error) {
	switch {
	case err == nil:
		b.Succeed()
	case errors.Is(err, context.Canceled):
	case marked(ctx, callerDeadlineMark{}):
		b.Suspect()
	default:
		b.Fail(err)
	}
}

// ping returns nil if the server answers anything but a refusal of user or password, and if the client is closed.
func (b *breaker) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(mark(ctx, insideMark{}), b.settings.Timeout)
	defer cancel()
	err := b.client.Ping(ctx).Err()
	if isBroken(err) {
		err = b.client.Ping(ctx).Err()
	}
	if !fails(err) || errors.Is(err, goredis.ErrClosed) {
		return nil
	}
	return err
}
