package kvload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// LoadOptions say what sessions of an engine do.
type LoadOptions struct {
	Engine   Options
	Sessions int
	Prompts  int // how many different ones there are
	Chunks   int // of a prompt, at most
	Salts    int
	Seed     uint64
	// MayLapse says that what a look-up has found may be gone: a server that was started again does not wait.
	MayLapse bool
	// Count is called after each request, with how often what has happened.
	Count func(map[string]int)
	// Rest, if it returns true, ends sessions between two requests; the engine stays until ctx ends.
	Rest func() bool
	// At is called in the midst of requests, for tests that end the process there.
	At func()
}

// requests numbers the requests of a process: engines of one process are one engine to the server, and engines of
// other processes have the same numbers.
var requests atomic.Int64

// Load runs sessions until ctx ends or one of them sees what must not be, which is the error.
func Load(ctx context.Context, o LoadOptions) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	e, err := Connect(ctx, o.Engine)
	if err != nil {
		return ended(ctx, err)
	}
	defer func() { _ = e.Close() }()
	errs := make([]error, o.Sessions+1)
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			if err := e.Beat(ctx); err != nil {
				errs[o.Sessions] = ended(ctx, fmt.Errorf("heartbeat: %w", err))
				stop()
			}
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	for i := range o.Sessions {
		wg.Go(func() {
			s := &session{o: o, e: e, rng: rand.New(rand.NewPCG(o.Seed, uint64(i)))}
			for ctx.Err() == nil && !o.Rest() {
				s.counts = map[string]int{}
				if err := s.request(ctx); err != nil {
					errs[i] = ended(ctx, err)
					stop()
				}
				o.Count(s.counts)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// ended is an error, but for one that the end of ctx has brought about.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(err, errAnswer) {
		return nil
	}
	return err
}

type session struct {
	o      LoadOptions
	e      *Engine
	rng    *rand.Rand
	counts map[string]int
}

// request is one request of an engine, from its look-up to its end.
func (s *session) request(ctx context.Context) error {
	r := &Request{
		ID:     fmt.Sprint("req-", requests.Add(1)),
		Prompt: NewPrompt(s.rng.IntN(s.o.Prompts), 1+s.rng.IntN(s.o.Chunks), s.e.Chunk),
	}
	if n := s.rng.IntN(s.o.Salts); n > 0 {
		r.Salt = fmt.Sprint("salt-", n)
	}
	s.counts["requests"]++
	found, from, err := s.find(ctx, r)
	if err != nil {
		return err
	}
	s.counts["chunks found"] += found - from
	ok, err := true, error(nil)
	if found > from {
		s.o.At()
		if ok, err = s.e.Load(ctx, r, from, found, s.pause); s.lost(&err) != nil {
			return fmt.Errorf("load of %s: %w", r.ID, err)
		} else if ok {
			s.counts["chunks loaded"] += found - from
		}
	}
	if !ok && s.counts["lost calls"] == 0 {
		s.counts["loads refused"]++
		if !s.o.MayLapse {
			return fmt.Errorf("%w: chunks %d to %d of %s were found and not loaded", errAnswer, from, found, r.ID)
		}
	}
	// The rest is computed, and stored step by step.
	for begin := found; begin < r.Prompt.Chunks(); {
		end := min(r.Prompt.Chunks(), begin+1+s.rng.IntN(8))
		s.o.At()
		stored, err := s.e.Store(ctx, r, begin, end, s.pause)
		if s.lost(&err) != nil {
			return fmt.Errorf("store of %s: %w", r.ID, err)
		}
		s.counts["objects stored"] += stored.Objects
		if stored.Lost {
			s.counts["stores that were not taken"]++
		}
		begin = end
	}
	s.o.At()
	err = s.e.End(ctx, r)
	return s.lost(&err)
}

// find looks up, some requests twice, and gives up a part of what was found: what an engine has itself.
func (s *session) find(ctx context.Context, r *Request) (found, from int, err error) {
	first := 0
	if !s.o.Engine.Old && s.rng.IntN(3) == 0 {
		first = s.rng.IntN(r.Prompt.Chunks() + 1)
	}
	ask := func(from int) int {
		err = s.e.Ask(ctx, r, from, r.Prompt.Chunks())
		if s.lost(&err) != nil {
			err = fmt.Errorf("look-up of %s: %w", r.ID, err)
			return 0
		}
		n, err2 := s.e.Status(ctx, r)
		if err = err2; s.lost(&err) != nil {
			err = fmt.Errorf("status of %s: %w", r.ID, err)
		}
		return n
	}
	if found = ask(first); err != nil {
		return 0, 0, err
	}
	if found > r.Prompt.Chunks() {
		return 0, 0, fmt.Errorf("%w: %d chunks found of %d", errAnswer, found, r.Prompt.Chunks())
	}
	extraFrom, extraTo := 0, 0
	if s.rng.IntN(8) == 0 { // preempted: it looks up again
		if !s.o.Engine.Old {
			extraFrom, extraTo = first, found
		}
		first = 0
		s.pause()
		if found = ask(0); err != nil {
			return 0, 0, err
		}
	}
	from = min(first, found)
	if s.rng.IntN(3) == 0 && found > from {
		from += s.rng.IntN(found - from)
	}
	if from > first || extraTo > extraFrom {
		err = s.e.Free(ctx, r, 0, from, extraFrom, extraTo)
		if s.lost(&err) != nil {
			return 0, 0, fmt.Errorf("free of %s: %w", r.ID, err)
		}
	}
	return found, min(from, found), err
}

// lost forgets an error of a call whose connection has ended, and counts it.
func (s *session) lost(err *error) error {
	if Lost(*err) {
		*err = nil
		s.counts["lost calls"]++
	}
	return *err
}

// pause lets others have a turn.
func (s *session) pause() {
	s.o.At()
	if s.rng.IntN(4) == 0 {
		time.Sleep(time.Duration(s.rng.IntN(2000)) * time.Microsecond)
	}
}
