//go:build e2e

package e2e

import (
	"context"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/wire"
)

// TestEncoderCacheCounts: what an engine's metrics say of loads and saves is what the test has seen, and what
// the daemon has counted: with the worker in the engine's process, in one of its own, and with two workers,
// which load the same.
func TestEncoderCacheCounts(t *testing.T) {
	for name, setup := range map[string]encoderSetup{
		"one process":       {},
		"several processes": {flags: []string{"--executor", "mp"}},
		"two workers":       {tp: 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := newCacheServer(t, "--http", "127.0.0.1:0")
			s.start()
			setup.role, setup.extra = "ec_both", map[string]any{"space": space}
			e := newEncoder(t, setup, s)
			none := map[string]int{"hits": 0, "misses": 0, "late": 0, "loaded_bytes": 0, "saves": 0, "saved_bytes": 0,
				"skipped": 0, "failures": 0}
			require.Equal(t, none, e.counts())

			// Not from the engine's own cache, for which the daemon is asked, too, and nothing is loaded.
			var names []string
			seen := func(a said) {
				for _, answer := range a.Answers {
					names = append(names, answer.Identifiers...)
				}
			}
			seen(e.does(6, 0, numbered(0, 6)...))
			e.again(0, 6, numbered(0, 6)...)
			e.does(0, 0, "text0")
			seen(e.again(1, 2, "image20", "image3", "image4"))
			size := s.size(names[:6]...) / 6
			require.Equal(t, 7*size, s.size(names[:7]...), "images have one size here")
			want := map[string]int{
				"hits": 8, "misses": 7, "late": 0, "loaded_bytes": 8 * size, "saves": 7, "saved_bytes": 7 * size,
				"skipped": 0, "failures": 0,
			}
			require.Equal(t, want, e.counts())
			metrics := s.metrics()
			require.Equal(t, want["hits"], metrics[`items_total{op="pin",status="hit"}`]-len(names[:6])-7,
				"with those of this test: %v", metrics)
			require.Equal(t, want["misses"], metrics[`items_total{op="pin",status="miss"}`])
			require.Equal(t, want["saves"], metrics[`items_total{op="commit",status="ok"}`])

			// Without a daemon nothing is loaded or saved.
			s.kill()
			e.again(2, 0, "image0", "image1")
			counts := e.counts()
			require.GreaterOrEqual(t, counts["failures"], 2, "of the scheduler, and of the worker")
			want["misses"], want["failures"] = 9, counts["failures"]
			require.Equal(t, want, counts)
			e.end()
		})
	}
}

// counts is what the engine's metrics say of the connector.
func (e *encoderEngine) counts() map[string]int {
	e.t.Helper()
	return e.do(map[string]any{"count": true}).Counts
}

// size is the bytes of objects of the tests' space.
func (s *cacheServer) size(names ...string) (size int) {
	s.t.Helper()
	ctx, c := s.client()
	items, err := c.Pin(ctx, wire.Request{Lease: "size", Space: space, Names: names})
	require.NoError(s.t, err)
	for _, v := range items {
		require.Equal(s.t, wire.StatusHit, v.Status)
		size += int(v.Size)
	}
	require.NoError(s.t, c.Release(ctx, wire.Request{Leases: []string{"size"}}))
	require.NoError(s.t, c.Close())
	return size
}

// metrics is what the daemon counts, by names without ringcache_ in front.
func (s *cacheServer) metrics() map[string]int {
	s.t.Helper()
	address := regexp.MustCompile(`msg=HTTP address=(\S+)`).FindStringSubmatch(s.words())
	require.NotNil(s.t, address, s.words())
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address[1]+"/metrics", nil)
	require.NoError(s.t, err)
	r, err := http.DefaultClient.Do(q)
	require.NoError(s.t, err)
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	require.NoError(s.t, err)
	found := map[string]int{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			found[strings.TrimPrefix(name, "ringcache_")] = int(v)
		}
	}
	return found
}
