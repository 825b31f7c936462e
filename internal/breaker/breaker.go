// Package breaker is the circuit breaker of what levels call and what can go away: a server, or a mount.
package breaker

import (
	"context"
	"sync"
	"time"
)

// Breaker has two states. While it is up, calls are made, and Err is nil. After Failures failed calls in a row it is
// down: Err is why, callers fail with that at once, and one goroutine calls Probe every Retry until that succeeds. The
// probe also runs while the breaker is up but suspect. The fields are set before the first call.
type Breaker struct {
	Failures int
	Retry    time.Duration
	// Start runs a goroutine that its owner waits for, with a context that ends with the owner. It returns false if
	// the owner is closed.
	Start func(func(ctx context.Context)) bool
	// Probe asks whether calls would be answered.
	Probe func(ctx context.Context) error
	// Explain, if not nil, makes the error that Err returns.
	Explain func(error) error
	// Failed, if not nil, is called after the breaker went down, and after each probe that failed.
	Failed func(ctx context.Context)

	mu       sync.Mutex
	failures int   // in a row
	down     error // nil while the breaker is up
	probing  bool  // the goroutine of probe runs
}

// Err returns why the breaker is down; nil if it is up.
func (b *Breaker) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.down
}

// Succeed counts a call that was answered.
func (b *Breaker) Succeed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures = 0
}

// Fail counts a call that failed, and takes the breaker down after Failures in a row.
func (b *Breaker) Fail(ctx context.Context, err error) {
	b.mu.Lock()
	b.failures++
	over := b.failures >= b.Failures && b.down == nil
	if over {
		b.down = b.explain(err)
	}
	b.mu.Unlock()
	if over {
		if b.Failed != nil {
			b.Failed(ctx)
		}
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

// probe calls Probe until it succeeds or the owner is closed.
func (b *Breaker) probe(ctx context.Context) {
	for {
		err := b.Probe(ctx)
		b.mu.Lock()
		if err == nil || ctx.Err() != nil {
			b.down, b.failures, b.probing = nil, 0, false
			b.mu.Unlock()
			return
		}
		b.down = b.explain(err)
		b.mu.Unlock()
		if b.Failed != nil {
			b.Failed(ctx)
		}
		select {
		case <-ctx.Done():
		case <-time.After(b.Retry):
		}
	}
}

func (b *Breaker) explain(err error) error {
	if b.Explain == nil {
		return err
	}
	return b.Explain(err)
}
