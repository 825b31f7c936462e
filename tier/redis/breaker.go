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

// breaker stands in front of one server. While the server fails, calls fail at once, and one goroutine asks it
// whether it is back. It is a hook of the server's client.
type breaker struct {
	settings *settings
	conns    *connections
	client   *goredis.Client
	// start runs a goroutine that the level waits for, with a context that ends when the level is
	// closed. It returns false then.
	start func(func(ctx context.Context)) bool
	// reload, if not nil, looks for who has the server's keys now.
	reload func(ctx context.Context)

	mu       sync.Mutex
	failures int   // one after the other
	away     error // why calls fail at once; nil while they do not
	asking   bool  // a goroutine asks
}

// Marks in contexts.
type (
	insideMark  struct{} // this call is part of one that a breaker let through
	noRetryMark struct{} // what was sent once must not be sent again
	hurryMark   struct{} // the deadline is the caller's, and says nothing about the server
	limitMark   struct{} // the time limit of a round trip is in the deadline
)

func marked(ctx context.Context, mark any) bool { return ctx.Value(mark) != nil }

func mark(ctx context.Context, mark any) context.Context { return context.WithValue(ctx, mark, true) }

// DialHook leaves connections as they are.
func (b *breaker) DialHook(next goredis.DialHook) goredis.DialHook { return next }

// ProcessHook lets one command through.
func (b *breaker) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		if marked(ctx, insideMark{}) {
			return next(ctx, cmd)
		}
		return b.pass(ctx, []goredis.Cmder{cmd}, func(ctx context.Context) error { return next(ctx, cmd) })
	}
}

// ProcessPipelineHook lets a pipeline through.
func (b *breaker) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		if marked(ctx, insideMark{}) {
			return next(ctx, cmds)
		}
		return b.pass(ctx, cmds, func(ctx context.Context) error { return next(ctx, cmds) })
	}
}

// pass calls next, unless the server is left alone. It calls next again when a connection broke, which may have been
// an old one, of a server that was restarted.
func (b *breaker) pass(ctx context.Context, cmds []goredis.Cmder, next func(context.Context) error) error {
	if err := b.isAway(); err != nil {
		for _, c := range cmds {
			c.SetErr(err)
		}
		return err
	}
	if !marked(ctx, limitMark{}) { // what the client does for itself
		var cancel context.CancelFunc
		ctx, cancel = b.settings.limited(ctx, 0)
		defer cancel()
	}
	inside := mark(ctx, insideMark{})
	began := time.Now()
	err := next(inside)
	if isBroken(failure(err, cmds)) && ctx.Err() == nil && b.isAway() == nil {
		b.conns.close(began) // they will be broken, too
		if marked(ctx, noRetryMark{}) {
			b.suspect()
			return err
		}
		err = next(inside)
	}
	b.report(ctx, failure(err, cmds))
	return err
}

// failure returns the error that is about the server or the way to it, rather than its answer to a command.
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
	case goredis.IsAuthError(err): // and each call would make a connection in vain
		return true
	case errors.As(err, &answer):
		return false
	}
	return true
}

// isBroken reports whether a connection broke that was there.
func isBroken(err error) bool {
	var dial *dialError
	if err == nil || errors.As(err, &dial) {
		return false
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

func (b *breaker) isAway() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.away
}

// report counts how a call ended.
func (b *breaker) report(ctx context.Context, err error) {
	switch {
	case err == nil:
		b.mu.Lock()
		b.failures = 0
		b.mu.Unlock()
	case errors.Is(err, context.Canceled):
	case marked(ctx, hurryMark{}):
		b.suspect()
	default:
		b.fail(err)
	}
}

// fail counts a failure, and leaves the server alone if it was one too many.
func (b *breaker) fail(err error) {
	b.mu.Lock()
	b.failures++
	over := b.failures >= b.settings.Failures && b.away == nil
	if over {
		b.away = &awayError{b.client.Options().Addr, err}
	}
	b.mu.Unlock()
	if over {
		b.conns.close(time.Now()) // others wait at it, too
		b.suspect()
	}
}

// suspect begins to ask the server.
func (b *breaker) suspect() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.asking {
		b.asking = b.start(b.ask)
	}
}

// ask asks the server until it answers.
func (b *breaker) ask(ctx context.Context) {
	for {
		err := contained(func() error { return b.ping(ctx) })
		b.mu.Lock()
		closed := errors.Is(err, goredis.ErrClosed) || ctx.Err() != nil
		if err == nil || closed {
			b.away, b.failures, b.asking = nil, 0, false
			b.mu.Unlock()
			return
		}
		b.away = &awayError{b.client.Options().Addr, err}
		b.mu.Unlock()
		b.conns.close(time.Now())
		if b.reload != nil {
			_ = contained(func() error { b.reload(ctx); return nil }) // the next question of the cluster tells
		}
		select {
		case <-ctx.Done():
		case <-time.After(b.settings.Retry):
		}
	}
}

// contained turns a panic in the client into an error. Calls of the level leave panics to its caller; the
// goroutine that asks has none.
func contained(fn func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("the client panicked: %v: please report it: %s", v, debug.Stack())
		}
	}()
	return fn()
}

// ping returns nil if the server answers anything but that it does not know us.
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

// awayError is why a server is left alone.
type awayError struct {
	addr string
	err  error
}

func (e *awayError) Error() string { return "server " + e.addr + ": " + e.err.Error() }
func (e *awayError) Unwrap() error { return e.err }
