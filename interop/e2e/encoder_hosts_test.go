//go:build e2e

package e2e

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/wire"
	"github.com/ringcache/ringcache/internal/hosttest"
	"github.com/ringcache/ringcache/internal/redistest"
)

var hostsCut = flag.Duration("hosts.cut", 30*time.Second, "TestEncoderHosts cuts a host off for this long")

// TestEncoderHosts: an engine and a daemon on each of two hosts, over one Redis. What the first engine's vision tower has
// made the second one loads, and its tower makes nothing. While a host is cut off both go on; then each has what the
// other one has made meanwhile.
func TestEncoderHosts(t *testing.T) {
	n := hosttest.New(t)
	redis := redistest.New(t, "--bind", "0.0.0.0", "--protected-mode", "no")
	redis.On(n.On)
	redis.Start()
	var hosts []*hosttest.Host
	var servers []*cacheServer
	var engines []*encoderEngine
	for range 2 {
		h := n.Host()
		s := newCacheServer(t, "--redis", fmt.Sprintf("%s:%d", h.Hub(), redis.Port()))
		s.on = h.On
		s.start()
		hosts, servers = append(hosts, h), append(servers, s)
		engines = append(engines, startEncoder(t, encoderSetup{role: "ec_both"}, s))
	}
	for _, e := range engines {
		e.ready()
	}
	a, b := engines[0], engines[1]
	all := append(numbered(0, 24), "two1") // whose images are 1 and 5
	a.does(24, 0, all...)
	servers[0].written()
	b.does(0, 24, all...)

	hosts[1].Cut()
	began := time.Now()
	b.does(6, 0, numbered(30, 6)...)
	servers[1].until("Redis is away", func(s *wire.State) bool { return s.Levels[1].Away })
	a.does(6, 0, numbered(40, 6)...)
	for asked := 0; asked < 2 || time.Since(began) < *hostsCut; asked++ {
		b.again(0, 30, append(numbered(0, 24), numbered(30, 6)...)...)
		a.again(0, 30, append(numbered(0, 24), numbered(40, 6)...)...)
	}
	require.Positive(t, servers[1].backlog())
	hosts[1].Mend()
	mended := time.Now()
	servers[1].written()
	t.Logf("cut off for %.1f s, there again after %.1f s", mended.Sub(began).Seconds(), time.Since(mended).Seconds())
	a.does(0, 6, numbered(30, 6)...)
	b.does(0, 6, numbered(40, 6)...)
	for i, e := range engines {
		e.again(0, 36, append(append(numbered(0, 24), numbered(30, 6)...), numbered(40, 6)...)...)
		e.end()
		servers[i].idle()
	}
}

// until waits until the server is as wanted.
func (s *cacheServer) until(what string, is func(*wire.State) bool) {
	s.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		st, _ := s.state()
		if is(st) {
			return
		}
		require.True(s.t, time.Now().Before(end), "%s: %+v", what, st)
	}
}

// written waits until the lower levels have all that was stored.
func (s *cacheServer) written() {
	s.t.Helper()
	s.until("all is written", func(st *wire.State) bool { return st.Backlog == 0 && !st.Levels[len(st.Levels)-1].Away })
}

// backlog is how many objects wait to be written to lower levels.
func (s *cacheServer) backlog() int {
	s.t.Helper()
	st, _ := s.state()
	return st.Backlog
}
