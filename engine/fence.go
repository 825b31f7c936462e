package engine

import (
	"context"

	"github.com/ringcache/ringcache/mmcache"
)

// needFence requests a fence: a request was aborted, whose items stay until one has
// passed.
func (s *session) needFence() {
	select {
	case s.fence <- struct{}{}:
	default: // one is requested already
	}
}

// fences keeps passing fences as long as requests are aborted, one at a time: all
// that were aborted meanwhile share the next.
func (s *session) fences() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.fence:
			s.passFence(s.ctx)
		}
	}
}

// passFence passes one fence, if the engine answers.
func (s *session) passFence(ctx context.Context) {
	shared, ok := s.c.o.Cache.(*mmcache.Shared)
	if !ok {
		return
	}
	f := shared.Fence()
	if err := s.workers(ctx); err != nil {
		s.c.o.Logger.Warn("no fence: items of aborted requests stay until their time is up", "error", err)
		return
	}
	f.Passed()
	s.c.count(func(n *Stats) { n.Fences++ })
}
