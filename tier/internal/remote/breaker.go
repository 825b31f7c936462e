package remote

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// A Breaker is the circuit breaker of what a level calls and what can go away: a server, or a mount, which is called a
// server here, too. It has two states. While the server is up, calls go to the
// server, and Down is nil. After Failures failed round trips in a row the server is down: calls fail at once
// with Down, all connections are closed, and one goroutine (probe) calls Ping until the server answers. The
// probe also runs while the server is up but suspect.
//
// The fields are set before the first call.
type Breaker struct {
	// Failures is how many round trips fail in a row before the server is down.
	Failures int
	// Retry is the time between two calls of Ping while the server is down.
	Retry time.Duration
	// Explain makes the error of calls while the server is down.
	Explain func(error) error
	// Start runs a goroutine with a context that ends with the level, which waits for it. It returns false if
	// the level is closed.
	Start func(func(ctx context.Context)) bool
	// Ping returns nil if the server answers, or if nobody uses the breaker any more.
	Ping func(ctx context.Context) error
	// Disconnect, if not nil, closes all connections, so that no call waits for a server that is down.
	Disconnect func()
	// Failed, if not nil, is called after each Ping that failed.
	Failed func(ctx context.Context)

	mu       sync.Mutex
	failures int   // in a row
	down     error // the error of calls while the server is down; nil while it is up
	probing  bool  // the goroutine of probe runs
}

// Down returns the error of calls while the server is down, and nil while it is up.
func (b *Breaker) Down() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.down
}

// Succeed notes that the server answered.
func (b *Breaker) Succeed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures = 0
}

// Fail counts a failure, and declares the server down after Failures in a row.
func (b *Breaker) Fail(err error) {
	b.mu.Lock()
	b.failures++
	over := b.failures >= b.Failures && b.down == nil
	if over {
		b.down = b.Explain(err)
	}
	b.mu.Unlock()
	if over {
		b.disconnect() // ends the calls that wait for the same server
		b.Suspect()
	}
}

// Suspect starts the probe, unless it runs.
func (b *Breaker) Suspect() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.probing {
		b.probing = b.Start(b.probe)
	}
}

// probe calls Ping until the server answers, and then declares it up.
func (b *Breaker) probe(ctx context.Context) {
	for {
		err := recovered(func() error { return b.Ping(ctx) })
		b.mu.Lock()
		if err == nil || ctx.Err() != nil {
			b.down, b.failures, b.probing = nil, 0, false
			b.mu.Unlock()
			return
		}
		b.down = b.Explain(err)
		b.mu.Unlock()
		b.disconnect()
		if b.Failed != nil {
			_ = recovered(func() error { b.Failed(ctx); return nil }) // an error shows at the next call
		}
		select {
		case <-ctx.Done():
		case <-time.After(b.Retry):
		}
	}
}

func (b *Breaker) disconnect() {
	if b.Disconnect != nil {
		b.Disconnect()
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

// ServerDown is the error of calls to a server of this name that is down.
func ServerDown(name string, err error) error { return fmt.Errorf("server %s: %w", name, err) }
