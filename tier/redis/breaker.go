package redis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// breaker is the circuit breaker of one server, as a hook of the server's client. It has two states. While
// the server is up, calls go to the server, and down is nil. After Options.Failures failed round trips in a
// row the server is down: calls fail at once with down, all connections are closed, and one goroutine (probe)
// sends PING until the server answers. The probe also runs while the server is up but suspect, after a broken
// connection or a short deadline.
type breaker struct {
	settings *settings
	conns    *connections
	client   *goredis.Client
	// start runs a goroutine that Level.Close waits for, with a context that ends with the level. It returns
	// false if the level is closed.
	start func(func(ctx context.Context)) bool
	// reload, if not nil, makes the client of a cluster ask which server has the keys of this one now.
	reload func(ctx context.Context)

	mu       sync.Mutex
	failures int   // in a row
	down     error // the error of calls while the server is down; nil while it is up
	probing  bool  // the goroutine of probe runs
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
	if err := b.downError(); err != nil {
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
	if isBroken(failure(err, cmds)) && ctx.Err() == nil && b.downError() == nil {
		b.conns.close(began) // the other old ones will be broken, too
		if marked(ctx, noRetryMark{}) {
			b.startProbe()
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

func (b *breaker) downError() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.down
}

// report counts how a call ended.
func (b *breaker) report(ctx context.Context, err error) {
	switch {
	case err == nil:
		b.mu.Lock()
		b.failures = 0
		b.mu.Unlock()
	case errors.Is(err, context.Canceled):
	case marked(ctx, callerDeadlineMark{}):
		b.startProbe()
	default:
		b.fail(err)
	}
}

// fail counts a failure, and declares the server down after Options.Failures in a row.
func (b *breaker) fail(err error) {
	b.mu.Lock()
	b.failures++
	over := b.failures >= b.settings.Failures && b.down == nil
	if over {
		b.down = &serverDownError{b.client.Options().Addr, err}
	}
	b.mu.Unlock()
	if over {
		b.conns.close(time.Now()) // ends the calls that wait for the same server
		b.startProbe()
	}
}

// startProbe starts the probe, unless it runs.
func (b *breaker) startProbe() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.probing {
		b.probing = b.start(b.probe)
	}
}

// probe sends PING until the server answers, and then declares it up.
func (b *breaker) probe(ctx context.Context) {
	for {
		err := recovered(func() error { return b.ping(ctx) })
		b.mu.Lock()
		closed := errors.Is(err, goredis.ErrClosed) || ctx.Err() != nil
		if err == nil || closed {
			b.down, b.failures, b.probing = nil, 0, false
			b.mu.Unlock()
			return
		}
		b.down = &serverDownError{b.client.Options().Addr, err}
		b.mu.Unlock()
		b.conns.close(time.Now())
		if b.reload != nil {
			_ = recovered(func() error { b.reload(ctx); return nil }) // an error shows at the next call
		}
		select {
		case <-ctx.Done():
		case <-time.After(b.settings.Retry):
		}
	}
}

// recovered turns a panic in the client into an error. Calls of the level leave panics to their caller, which
// the goroutine of probe does not have.
func recovered(fn func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("the client panicked: %v: please report it: %s", v, debug.Stack())
		}
	}()
	return fn()
}

// ping returns nil if the server answers anything but a refusal of user or password.
func (b *breaker) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(mark(ctx, insideMark{}), b.settings.Timeout)
	defer cancel()
	err := b.client.Ping(ctx).Err()
	if isBroken(err) {
		err = b.client.Ping(ctx).Err()
	}
	if !fails(err) {
		return nil
	}
	return err
}

// serverDownError is why a server is down.
type serverDownError struct {
	addr string
	err  error
}

func (e *serverDownError) Error() string { return "server " + e.addr + ": " + e.err.Error() }
func (e *serverDownError) Unwrap() error { return e.err }
