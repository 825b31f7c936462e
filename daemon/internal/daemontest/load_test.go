package daemontest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// patience is how long anything may take before it counts as a hang: a daemon that starts again on a busy
// machine needs a while.
const patience = 3 * time.Minute

// LoadOptions say what sessions do.
type LoadOptions struct {
	Socket string
	Dir    string // of shared memory, /dev/shm if empty
	// Space returns the space to work in now. Sessions ask for it before each request.
	Space func() string
	// Objects is the number of different objects in a space.
	Objects int
	// Sessions is the number of sessions at a time.
	Sessions int
	Seed     uint64
	// MayFull says that the daemon has little room: full is an answer, and objects may be gone.
	MayFull bool
	// MayLapse says that a daemon that was started again does not wait for clients: pins may be gone then,
	// and reservations may not.
	MayLapse bool
	// MayAway says that a lower level may be away: unavailable is an answer in the place of a miss.
	MayAway bool
	// Done is called after each step, by the session's goroutine, with the numbers of the objects of a space
	// that the daemon has said are committed.
	Done func(space string, committed []int)
	// At, if not nil, is called in the midst of steps, with what was just done: for tests that end the process there.
	At func(stage string)
	// Count, if not nil, counts the answers about objects.
	Count func(what string, n int)
}

// Load runs sessions until ctx ends or one of them sees what must not be, which is the error. Their leases
// stay open: they end with the process.
func Load(ctx context.Context, o LoadOptions) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	errs := make([]error, o.Sessions)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			s := &session{o: o, ctx: ctx, rng: rand.New(rand.NewPCG(o.Seed, uint64(i))), leases: map[string]*lease{}}
			if err := s.run(); err != nil && !(ctx.Err() != nil && errors.Is(err, context.Canceled)) {
				errs[i] = fmt.Errorf("session %d, step %d (%s): %w", i, s.steps, s.doing, err)
				stop()
			}
			if s.c != nil {
				_ = s.c.Close()
			}
			if s.m != nil {
				_ = s.m.Close()
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
