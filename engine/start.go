package engine

import (
	"context"
	"fmt"

	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde/enginecore"
)

// Start starts the engine, or awaits one that somebody else starts, and returns
// when it is ready. After the engine has gone it does so again: items in shared
// memory are kept, those that the engine itself kept (mode lru) are forgotten. An
// engine that somebody else restarts must have ended, with its workers, before.
//
// Nothing is put into the cache for the engine's sake, but items may be put by
// requests that have begun: their handles stay good.
//
// Errors: [ErrDead] if the engine ends before; [MismatchError];
// pycompat.ErrUnknownVersion, see Options.Generation; [fs.ErrInvalid] if the engine
// runs already, or does not report what the options have to contain then;
// [fs.ErrClosed]; ctx's, or that of Options.StartTimeout. The engine is ended then, if
// the client started it.
func (c *Client) Start(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.closing, func() { cancel(errClosed) })()
	if c.starting.Acquire(ctx, 1) != nil {
		return context.Cause(ctx)
	}
	defer c.starting.Release(1)
	if err := c.prepare(ctx); err != nil {
		return err
	}
	ctx, stop := context.WithTimeoutCause(ctx, c.o.StartTimeout,
		fmt.Errorf("engine: not ready after %v (Options.StartTimeout): %w", c.o.StartTimeout, context.DeadlineExceeded))
	defer stop()
	s, err := c.launch()
	if err != nil {
		return err
	}
	defer context.AfterFunc(s.ctx, func() { cancel(s.deadError()) })()
	if err = s.await(ctx); err == nil {
		err = s.meet(ctx)
	}
	if err == nil {
		err = s.run()
	}
	if err != nil {
		s.end(err)
		<-s.over
	}
	c.handshake.await(nil)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.s = s
	c.stats.Starts++
	c.mu.Unlock()
	c.o.Logger.Info("engine ready", "version", s.gen.Version, "workers", s.ready.WorldSize, "max_model_len",
		s.ready.MaxModelLen)
	return nil
}

// prepare waits for the end of the engine before.
func (c *Client) prepare(ctx context.Context) error {
	c.mu.Lock()
	s, open := c.s, c.state == clientOpen
	c.mu.Unlock()
	switch {
	case !open:
		return errClosed
	case s == nil:
		return nil
	case s.deadError() == nil:
		return fmt.Errorf("%w: the engine is running already", errInvalid)
	}
	select {
	case <-s.over:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// launch starts an engine, and makes a session for it.
func (c *Client) launch() (*session, error) {
	var p *process
	if c.o.Command != nil {
		var err error
		a := c.Address()
		if p, err = startProcess(c.o.Command(a), a.Env); err != nil {
			return nil, err
		}
	}
	s, err := c.newSession(p)
	if err != nil {
		if p != nil {
			p.kill()
			<-p.done
		}
		return nil, err
	}
	c.mu.Lock()
	c.s = nil
	c.mu.Unlock()
	c.handshake.await(s)
	return s, nil
}

// await waits until the engine has connected to its sockets and reports what it is:
// it does so when its model is loaded and its workers run (EngineCoreProc.__init__
// of vllm/v1/engine/core.py, 0.11.0 to 0.32.0). The engine reports on the handshake
// socket, too, that it is ready, but there anybody can.
func (s *session) await(ctx context.Context) error {
	select {
	case b := <-s.link.first:
		r, err := enginecore.DecodeReady(b)
		if err != nil {
			return fmt.Errorf("engine: its first message can't be read: %w", err)
		}
		s.ready = r
		return nil
	case <-ctx.Done(): // the session's end, too
		return context.Cause(ctx)
	}
}

// meet compares the engine with what was expected of it, and prepares the cache.
func (s *session) meet(ctx context.Context) error {
	c := s.c
	err := plausible(s.ready)
	if err != nil {
		return err
	}
	if s.gen, err = generationOf(s.ready, c.o.Generation); err != nil {
		return err
	}
	if s.ready.VLLMVersion == "" {
		s.ready.VLLMVersion = s.gen.Version
	}
	codec, err := enginecore.New(enginecore.Options{Generation: s.gen})
	if err != nil {
		return err
	}
	s.codec.Store(codec)
	if n := s.ready.DataParallelSize; n > 1 {
		return &MismatchError{"data parallel size", "1", fmt.Sprint(n), "engines that work in step need vLLM's coordinator, which this client does not speak to; run them one by one"}
	}
	if err := s.limits(); err != nil {
		return err
	}
	readers := s.ready.WorldSize
	if readers == 0 {
		readers = c.o.Readers
	}
	switch {
	case c.o.Readers != 0 && readers != c.o.Readers:
		return &MismatchError{"number of workers", fmt.Sprint(c.o.Readers), fmt.Sprint(readers),
			"correct Options.Readers, or leave it out"}
	case c.o.Cache == nil:
		return nil
	}
	cached := c.o.Cache.Generation()
	fits := true
	switch c.o.Cache.(type) {
	case *mmcache.Shared:
		fits = cached.SameWire(s.gen)
	case *mmcache.Mirrored:
		fits = cached.Cache == s.gen.Cache && cached.ItemForm == s.gen.ItemForm
	}
	if !fits {
		return &MismatchError{"version", "compatible with " + cached.Version, s.gen.Version,
			"open the cache with its generation (mmcache.Options.Generation)"}
	}
	switch cache := c.o.Cache.(type) {
	case *mmcache.Shared:
		if readers == 0 {
			return fmt.Errorf("%w: vLLM %s does not report how many workers it has; set Options.Readers",
				errInvalid, s.gen.Version)
		}
		err = c.resetReaders(readers)
	case *mmcache.Mirrored:
		err = cache.Clear(ctx, func(lrusync.Envelope) error { return nil })
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return err
}

// resetReaders reports to the cache that whoever read before is gone.
func (c *Client) resetReaders(n int) error {
	if shared, ok := c.o.Cache.(*mmcache.Shared); ok {
		return shared.ResetReaders(n)
	}
	return nil
}

// limits takes from the options what bounds requests, if the engine does not report it.
func (s *session) limits() error {
	m := s.c.o.Model
	if s.ready.MaxModelLen == 0 {
		s.ready.MaxModelLen = m.MaxModelLen
	}
	if s.ready.MaxNumBatchedTokens == 0 {
		s.ready.MaxNumBatchedTokens = m.MaxBatchedTokens
	}
	switch {
	case s.ready.MaxModelLen == 0:
		return fmt.Errorf("%w: vLLM %s does not report its max_model_len; set Model.MaxModelLen",
			errInvalid, s.gen.Version)
	case s.ready.MaxNumBatchedTokens == 0 && len(m.Modalities) > 0:
		return fmt.Errorf("%w: vLLM %s does not report its max_num_batched_tokens; set Model.MaxBatchedTokens",
			errInvalid, s.gen.Version)
	}
	return nil
}

// generationOf finds the generation of an engine. given is for engines that don't
// report their version, or have one that is not in the table.
func generationOf(r *enginecore.Ready, given *pycompat.Generation) (*pycompat.Generation, error) {
	if r.VLLMVersion == "" {
		if given == nil {
			return given, fmt.Errorf("%w: the engine does not report its version; set Options.Generation", errInvalid)
		}
		return given, nil
	}
	if given != nil && given.Version == r.VLLMVersion {
		return given, nil // by TreatAs, perhaps
	}
	g, err := pycompat.Lookup(r.VLLMVersion)
	if err != nil {
		return g, err
	}
	if given != nil && given.Version != g.Version {
		return g, &MismatchError{"version", given.Version, g.Version, "correct Options.Generation, or leave it out"}
	}
	return g, nil
}
