package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/serde/enginecore"
)

// Call calls a utility method of EngineCore (vllm/v1/engine/core.py) and waits for
// its answer: nil, bool, int64, float64, string, []any or map[string]any. "is_sleeping"
// reports whether the engine sleeps, "reset_prefix_cache" whether it could, which it can't
// while requests use the cache (older releases answer nil). Not all releases have all
// methods. A method that takes images from the engine has to be called through this
// client's own (ClearItems, Sleep), which clear the cache, too. Some methods end the
// engine when they are called, or when their arguments are wrong: those that do so
// always are refused.
//
// Errors: [CallError]; [ErrRefused]; [ErrNotRunning], [ErrDead], [fs.ErrClosed]; ctx's,
// after which the call may still happen.
func (c *Client) Call(ctx context.Context, method string, args ...any) (any, error) {
	if why, ok := fatalCalls[method]; ok {
		return nil, fmt.Errorf("%w: %q is not called: %s", ErrRefused, method, why)
	}
	s, err := c.live()
	if err != nil {
		return nil, err
	}
	return s.call(ctx, method, args...)
}

// fatalCalls are methods of EngineCore that are not meant for a frontend.
var fatalCalls = map[string]string{
	"shutdown":               "it ends the engine; use Close",
	"handle_fault_tolerance": "it is answered by the input thread, and ends it if there is no sentinel",
}

// calls are the calls that the engine has to answer. The session's lock guards them.
type calls struct {
	waiting map[uint64]chan *enginecore.Answer // by id
	last    uint64                             // id
}

func (s *session) call(ctx context.Context, method string, args ...any) (any, error) {
	answer := make(chan *enginecore.Answer, 1)
	s.mu.Lock()
	if s.dead != nil {
		s.mu.Unlock()
		return nil, s.dead
	}
	s.expectAnswer()
	s.calls.last++
	id := s.calls.last
	s.calls.waiting[id] = answer
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.calls.waiting, id)
		s.mu.Unlock()
	}()
	f, err := s.codec.Load().EncodeCall(&enginecore.Call{ID: id, Method: method, Args: args})
	if err != nil {
		return nil, err
	}
	if err := s.send(f); err != nil {
		return nil, err
	}
	select {
	case u := <-answer:
		switch {
		case u.Failure != nil:
			return nil, &CallError{method, *u.Failure}
		case u.Err != nil:
			return nil, &CallError{method, "its answer can't be read: " + u.Err.Error()}
		}
		return u.Result, nil
	case <-s.ctx.Done():
		return nil, s.deadError()
	case <-ctx.Done():
		return nil, fmt.Errorf("engine: no answer to %q: %w", method, ctx.Err())
	}
}

// answer passes an answer on to whoever waits for it.
func (s *session) answer(u *enginecore.Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ch := s.calls.waiting[u.CallID]; ch != nil {
		delete(s.calls.waiting, u.CallID)
		ch <- u
	}
}

// workers calls every worker, behind everything that was sent before; the answer
// comes when all have executed it. It has no effect.
func (s *session) workers(ctx context.Context) error {
	_, err := s.call(ctx, "collective_rpc", "check_health", nil, []any{}, map[string]any{})
	return err
}

// Check asks the engine's loop and every worker whether they are there.
func (c *Client) Check(ctx context.Context) error {
	s, err := c.live()
	if err != nil {
		return err
	}
	return s.workers(ctx)
}

// ResetEncoderCache forgets what the engine computed of items. It is a barrier:
// it waits until no request is under way, while new ones wait.
func (c *Client) ResetEncoderCache(ctx context.Context) error {
	return c.quiesced(ctx, func() error {
		s, err := c.live()
		if err != nil {
			return err
		}
		if _, err = s.call(ctx, "reset_encoder_cache"); err == nil {
			s.sent.reset()
		}
		return err
	})
}

// ClearItems forgets every multimodal item on both sides (reset_mm_cache). It is a
// barrier as mmcache.Cache.Clear is: in mode shm it waits until every request with
// items has ended, while new ones wait. An error means that the cache forgot
// nothing; if it is ctx's the engine may have, which in mode lru shows as misses.
func (c *Client) ClearItems(ctx context.Context) error {
	return c.cleared(ctx, func() error { return nil })
}

// cleared clears the items on both sides, and calls f before any request follows.
// Whatever f returns, they are cleared.
func (c *Client) cleared(ctx context.Context, f func() error) error {
	var late error
	call := func() error {
		_, err := c.Call(ctx, "reset_mm_cache")
		if err == nil {
			late = f()
		}
		return err
	}
	var err error
	if c.o.Cache == nil {
		err = call()
	} else {
		err = c.o.Cache.Clear(ctx, func(lrusync.Envelope) error { return call() })
	}
	return errors.Join(err, late)
}

// Sleep frees the engine's memory: at level 1 weights go to the host, at level 2
// they are dropped (vLLM's sleep mode, which the engine has to be started with).
// It is a barrier, and clears the items, since an engine that sleeps forgets its
// own. Until WakeUp requests are refused with [ErrAsleep].
func (c *Client) Sleep(ctx context.Context, level int) error {
	return c.clearedQuietly(ctx, func() error { return c.callAndStep(ctx, sessionSlept, "sleep", level) })
}

// WakeUp ends the sleep.
func (c *Client) WakeUp(ctx context.Context) error { return c.callAndStep(ctx, sessionWoke, "wake_up") }

// callAndStep calls a method that changes the state of the session.
func (c *Client) callAndStep(ctx context.Context, e sessionEvent, method string, args ...any) error {
	s, err := c.live()
	if err != nil {
		return err
	}
	if _, err = s.call(ctx, method, args...); err == nil {
		s.step(e)
	}
	return err
}

// quiesced calls f while no request is under way.
func (c *Client) quiesced(ctx context.Context, f func() error) error {
	if err := c.gate.Acquire(ctx, everybody); err != nil {
		return err
	}
	defer c.gate.Release(everybody)
	return f()
}

// clearedQuietly clears the items and calls f while no request is under way. The
// order of the two barriers is that in which nobody waits for the other: in mode
// shm a request has passed the cache's before it comes to ours; in mode lru the
// cache's waits for nobody, but holds up requests that are to be sent again.
func (c *Client) clearedQuietly(ctx context.Context, f func() error) error {
	if c.mirrored() {
		return c.quiesced(ctx, func() error { return c.cleared(ctx, f) })
	}
	return c.cleared(ctx, func() error { return c.quiesced(ctx, f) })
}
