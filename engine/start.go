package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
)

// Start starts the engine, or awaits one that somebody else starts, and returns
// when it is ready. After the engine has gone it does so again: items in shared
// memory are kept, those that the engine itself kept (mode lru) are forgotten. An
// engine that somebody else restarts must have ended, with its workers, before.
//
// Nothing is put into the cache for the engine's sake, but items may be put by
// requests that have begun: their handles stay good.
//
// Errors: [DeadError] if the engine ends before; [MismatchError];
// pycompat.ErrUnknownVersion, see Options.Generation; [ErrInvalid] if the engine
// runs already, or does not tell what the options have to say then; [ErrClosed];
// ctx's, or that of Options.StartTimeout. The engine is ended then, if it is ours.
func (c *Client) Start(ctx context.Context) error {
	c.starting.Lock()
	defer c.starting.Unlock()
	if err := c.prepare(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.o.StartTimeout,
		fmt.Errorf("engine: not ready after %v (Options.StartTimeout): %w", c.o.StartTimeout, context.DeadlineExceeded))
	defer cancel()
	s, err := c.launch()
	if err != nil {
		return err
	}
	if err = s.await(ctx); err == nil {
		err = c.meet(ctx, s)
	}
	if err != nil {
		s.die(err)
		<-s.ended
		return err
	}
	s.heard.Store(time.Now().UnixNano())
	s.mu.Lock()
	if s.dead == nil { // else it has ended its goroutines
		s.wait.Go(func() { s.watch(c.o.Silence) })
		s.wait.Go(s.fences)
	}
	s.mu.Unlock()
	c.asleep.Store(false)
	c.mu.Lock()
	c.live = true
	c.stats.Starts++
	c.mu.Unlock()
	c.o.Logger.Info("engine ready", "version", s.gen.Version, "workers", s.ready.WorldSize, "max_model_len", s.ready.MaxModelLen)
	return nil
}

// prepare waits for the end of the engine before.
func (c *Client) prepare(ctx context.Context) error {
	c.mu.Lock()
	s, closed, live := c.s, c.closed, c.live
	c.mu.Unlock()
	switch {
	case closed:
		return ErrClosed
	case s == nil:
		return nil
	case live && s.deadError() == nil:
		return fmt.Errorf("%w: the engine is running already", ErrInvalid)
	}
	select {
	case <-s.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// launch starts an engine, and makes the session with it the client's.
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
	c.s, c.live = s, false
	c.mu.Unlock()
	c.pair() // with one that came first
	return s, nil
}

// readHandshake takes what engines say, as long as the client lives.
func (c *Client) readHandshake() {
	for {
		m, err := c.handshake.Recv(context.Background())
		if err != nil {
			return
		}
		if m.Gone {
			c.left(m.Peer)
			continue
		}
		h, err := serde.DecodeHandshake(m.Frames[0])
		switch {
		case err != nil:
			c.o.Logger.Warn("unreadable handshake", "peer", fmt.Sprintf("%s (%x)", m.Peer, m.Identity), "error", err)
		case h.Status == serde.StatusHello:
			c.hello(m.Peer)
		case h.Status == serde.StatusReady: // which the engine's first message on its input socket proves
		default:
			c.o.Logger.Warn("unknown handshake", "peer", fmt.Sprintf("%s (%x)", m.Peer, m.Identity), "status", h.Status)
		}
	}
}

// hello is said by an engine that wants its addresses. Everyone is told who says
// it while an engine is awaited: who that is shows on the input socket, which is a
// file that not everyone can open. Each connection is told once.
func (c *Client) hello(peer string) {
	c.mu.Lock()
	if _, again := c.hellos[peer]; again {
		c.mu.Unlock()
		return
	}
	c.hellos[peer] = false
	c.mu.Unlock()
	c.pair()
}

// left is said of a peer that has closed its handshake socket. Since every
// connection does so at its end, hellos is bounded by the transport.
func (c *Client) left(peer string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.hellos, peer)
}

// pair welcomes who waits, if there is a session that awaits an engine.
func (c *Client) pair() {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.s
	if s == nil || c.live || s.deadError() != nil {
		return
	}
	for peer, answered := range c.hellos {
		if !answered {
			c.hellos[peer] = true
			c.wait.Go(func() { c.welcome(s, peer) }) // or who does not read would hold up the others
		}
	}
}

// welcome tells an engine where to connect.
func (c *Client) welcome(s *session, peer string) {
	b, err := serde.EncodeInit(&serde.Init{Inputs: []string{s.input.Endpoint()}, Outputs: []string{s.output.Endpoint()}})
	if err == nil {
		err = c.handshake.Send(peer, b)
	}
	if err != nil { // it went, and the next one may come
		c.o.Logger.Warn("an engine said hello and was gone", "error", err)
	}
}

// await waits until the engine has connected to its sockets and says what it is:
// it does so when its model is loaded and its workers run (EngineCoreProc.__init__
// of vllm/v1/engine/core.py, 0.11.0 to 0.32.0). That it is ready it says on the
// handshake socket, too, but there anybody can.
func (s *session) await(ctx context.Context) error {
	select {
	case b := <-s.first:
		r, err := serde.DecodeReady(b)
		if err != nil {
			return fmt.Errorf("engine: its first message can't be read: %w", err)
		}
		s.ready = r
		return nil
	case <-s.gone:
		return s.deadError()
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.c.closing:
		return ErrClosed
	}
}

// meet compares the engine with what was expected of it, and prepares the cache.
func (c *Client) meet(ctx context.Context, s *session) error {
	err := plausible(s.ready)
	if err != nil {
		return err
	}
	if s.gen, err = generationOf(s.ready, c.o.Generation); err != nil {
		return err
	}
	if n := s.ready.DataParallelSize; n > 1 {
		return &MismatchError{"data parallel size", "1", fmt.Sprint(n), "engines that work in step need vLLM's coordinator, which is not spoken to; run them one by one"}
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
		return &MismatchError{"number of workers", fmt.Sprint(c.o.Readers), fmt.Sprint(readers), "correct Options.Readers, or leave it out"}
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
		return &MismatchError{"version", "compatible with " + cached.Version, s.gen.Version, "open the cache with its generation (mmcache.Options.Generation)"}
	}
	switch cache := c.o.Cache.(type) {
	case *mmcache.Shared:
		if readers == 0 {
			return fmt.Errorf("%w: vLLM %s does not tell how many workers it has; set Options.Readers", ErrInvalid, s.gen.Version)
		}
		return c.resetReaders(readers)
	case *mmcache.Mirrored:
		return cache.Clear(ctx, func(lrusync.Envelope) error { return nil })
	}
	return nil
}

// readyBounds are the largest numbers that an engine may have in its ready message,
// far above those of any. What it does not tell is 0.
var readyBounds = map[string]int{
	"max_model_len": 1 << 31, "max_num_batched_tokens": 1 << 31, "max_num_seqs": 1 << 24,
	"num_gpu_blocks": 1 << 40, "block_size": 1 << 24,
	"world_size": 1 << 16, "data_parallel_size": 1 << 16, "data_parallel_rank": 1<<16 - 1,
	"tensor_parallel_size": 1 << 16, "pipeline_parallel_size": 1 << 16,
}

// maxVersion is the length of a version.
const maxVersion = 128

// plausible refuses an engine that says of itself what can't be: requests are bounded by
// these numbers, and shared memory is read by as many workers.
func plausible(r *serde.Ready) error {
	const advice = "it is not vLLM that speaks there, or one that is not known here"
	told := map[string]int{
		"max_model_len": r.MaxModelLen, "max_num_batched_tokens": r.MaxNumBatchedTokens, "max_num_seqs": r.MaxNumSeqs,
		"num_gpu_blocks": r.NumGPUBlocks, "block_size": r.BlockSize,
		"world_size": r.WorldSize, "data_parallel_size": r.DataParallelSize, "data_parallel_rank": r.DataParallelRank,
		"tensor_parallel_size": r.TensorParallelSize, "pipeline_parallel_size": r.PipelineParallelSize,
	}
	for _, name := range slices.Sorted(maps.Keys(readyBounds)) {
		most := readyBounds[name]
		if v := r.Rest[name]; v != nil { // what is below 0, or no whole number, is there
			return &MismatchError{name, fmt.Sprintf("a number from 0 to %d", most), fmt.Sprintf("%.64v", v), advice}
		}
		if n := told[name]; n < 0 || n > most {
			return &MismatchError{name, fmt.Sprintf("a number from 0 to %d", most), fmt.Sprint(n), advice}
		}
	}
	switch v := r.Rest["vllm_version"]; {
	case v != nil:
		return &MismatchError{"vllm_version", "text", fmt.Sprintf("%.64v", v), advice}
	case len(r.VLLMVersion) > maxVersion:
		return &MismatchError{"vllm_version", fmt.Sprintf("at most %d bytes long", maxVersion), fmt.Sprintf("%.32q...", r.VLLMVersion), advice}
	case r.DataParallelRank > 0 && r.DataParallelRank >= max(r.DataParallelSize, 1):
		return &MismatchError{"data_parallel_rank", fmt.Sprintf("below the data_parallel_size of %d", max(r.DataParallelSize, 1)), fmt.Sprint(r.DataParallelRank), advice}
	}
	return nil
}

// limits takes from the options what bounds requests, if the engine does not tell.
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
		return fmt.Errorf("%w: vLLM %s does not tell its max_model_len; set Model.MaxModelLen", ErrInvalid, s.gen.Version)
	case s.ready.MaxNumBatchedTokens == 0 && len(m.Modalities) > 0:
		return fmt.Errorf("%w: vLLM %s does not tell its max_num_batched_tokens; set Model.MaxBatchedTokens", ErrInvalid, s.gen.Version)
	}
	return nil
}

// resetReaders tells the cache that whoever read before is gone.
func (c *Client) resetReaders(n int) error {
	if shared, ok := c.o.Cache.(*mmcache.Shared); ok {
		return shared.ResetReaders(n)
	}
	return nil
}

// generationOf finds the generation of an engine. given is for engines that don't
// tell their version, or have one that is not known.
func generationOf(r *serde.Ready, given *pycompat.Generation) (*pycompat.Generation, error) {
	if r.VLLMVersion == "" {
		if given == nil {
			return given, fmt.Errorf("%w: the engine does not tell its version; set Options.Generation", ErrInvalid)
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
