//go:build e2e

package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// kvReference compares tokens with those of an engine that computes all.
type kvReference struct {
	plain *kvEngine
	known map[string][]uint32
}

// TestKVConditions: engines with LMCache under conditions other than those of TestKV: tokens stay those of an
// engine that computes all, hits are what they should be, and no lease is left.
func TestKVConditions(t *testing.T) {
	r := &kvReference{plain: newKV(t, "", nil, "--max-tokens", "40"), known: map[string][]uint32{}}
	for _, c := range []struct {
		name string
		test func(t *testing.T, r *kvReference, url string)
	}{
		{"faults", testKVFaults},
		{"preemption", testKVPreemption},
		{"prefix-caching", testKVPrefixCaching},
		{"roles", testKVRoles},
		{"workers", testKVWorkers},
	} {
		t.Run(c.name, func(t *testing.T) {
			folder, err := os.MkdirTemp("", "kv") // short, as paths of sockets have to be
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, os.RemoveAll(folder)) })
			c.test(t, r, "grpc+unix://"+filepath.Join(folder, "kv"))
		})
	}
}

// ask has an engine answer requests, and returns how many tokens of each prompt it did not compute.
func (r *kvReference) ask(e *kvEngine, requests []kvRequest) []int {
	e.t.Helper()
	e.send(requests)
	return r.check(e, requests)
}

// check waits for the answers to requests, and compares their tokens.
func (r *kvReference) check(e *kvEngine, requests []kvRequest) (cached []int) {
	e.t.Helper()
	answers := e.answered()
	for i, q := range requests {
		key := fmt.Sprint(q.Tokens)
		if r.known[key] == nil {
			r.known[key] = r.plain.ask(q.Tokens)[0].Tokens
		}
		a := answers[i]
		require.NotEmpty(e.t, a.Tokens)
		require.Equal(e.t, r.known[key][:len(a.Tokens)], a.Tokens, "prompt %d", i)
		cached = append(cached, a.Cached)
	}
	return cached
}

// loads asks one prompt, and verifies how many of its tokens were not computed.
func (r *kvReference) loads(e *kvEngine, cached int, prompt []uint32) {
	e.t.Helper()
	require.Equal(e.t, []int{cached}, r.ask(e, salted("", prompt)))
}

// recovers asks until that many tokens are not computed: an engine has to notice first that the server is there.
func (r *kvReference) recovers(e *kvEngine, cached int, prompt []uint32) {
	e.t.Helper()
	require.Eventually(e.t, func() bool {
		got := r.ask(e, salted("", prompt))[0]
		require.Contains(e.t, []int{0, cached}, got)
		return got == cached
	}, patience, time.Millisecond, "the engine loads nothing")
}

// with replaces a setting, or adds it.
func (s *cacheServer) with(flag, value string) {
	if i := slices.Index(s.args, flag); i >= 0 {
		s.args[i+1] = value
		return
	}
	s.args = append(s.args, flag, value)
}

// testKVFaults: two engines of both releases, and everything that happens to a server.
func testKVFaults(t *testing.T, r *kvReference, url string) {
	s := newCacheServer(t, "--lmcache", url, "--lmcache-chunk-size", "64")
	s.start()
	older, newer := newLMCache(t, "0.5.6", url), newLMCache(t, "0.5.7rc2", url)
	both := []*kvEngine{older, newer}

	// Nothing of one salt is found with another one, or without.
	p := kvPrompt(200, 10)
	r.loads(older, 0, p)
	for _, salt := range []string{"alice", "bob"} {
		require.Equal(t, []int{0}, r.ask(newer, salted(salt, p)))
		require.Equal(t, []int{192}, r.ask(older, salted(salt, p)))
	}
	r.loads(newer, 192, p)
	s.leaseless()

	// The memory is lost: engines still have the old one mapped, and must register again before they store.
	s.kill()
	s.loseMemory()
	s.start()
	for i, e := range both {
		r.loads(e, 0, p)
		r.recovers(e, 192, kvPrompt(200, 11+uint64(i)))
	}
	r.recovers(older, 192, p)
	r.loads(newer, 192, p)
	s.leaseless()

	// The server does not answer for a time.
	for i, d := range []time.Duration{3 * time.Second, 12 * time.Second} {
		s.signal(syscall.SIGSTOP)
		over := make(chan struct{})
		time.AfterFunc(d, func() {
			_ = syscall.Kill(s.pid, syscall.SIGCONT)
			close(over)
		})
		for n, stopped := uint64(0), true; stopped; n++ {
			// Each has prompts of its own: what a look-up finds that was made now, and is answered when the
			// engine waits no more, is locked until the time of the lock ends.
			var requests [2][]kvRequest
			for j, e := range both {
				requests[j] = salted("", kvPrompt(200, 1000*uint64(i+1)+2*n+uint64(j)))
				e.send(requests[j])
			}
			for j, e := range both {
				r.check(e, requests[j])
			}
			select {
			case <-over:
				stopped = false
			default:
			}
		}
		for j, e := range both {
			r.recovers(e, 192, p)
			r.recovers(e, 192, kvPrompt(200, 20+2*uint64(i)+uint64(j)))
		}
		s.leaseless()
	}

	// From here on nothing fails that a look-up has found. Above, the half of an engine that loads may notice
	// later than the one that looks up that the server is there again: LMCache fails the load itself then.
	failed := make([]int, len(both))
	for i, e := range both {
		failed[i] = strings.Count(e.words(), "KV load failure")
	}

	// A new memory of another size, which has room for less than the prompts of one step.
	s.kill()
	s.loseMemory()
	s.with("--size", "1MiB")
	s.start()
	for _, e := range both {
		r.recovers(e, 64, kvPrompt(100, 30))
	}
	hits := 0
	for range 3 {
		for i := range kvPlan {
			requests := salted("", kvPlan[i].prompts...)
			for _, e := range both {
				e.send(requests)
			}
			for _, e := range both {
				for _, n := range r.check(e, requests) {
					hits += n
				}
			}
		}
	}
	require.Positive(t, hits, "nothing was loaded from a full memory")
	s.leaseless()
	long := kvPrompt(1500, 31)
	r.ask(newer, salted("", long))
	some := r.ask(older, salted("", long))[0]
	require.Greater(t, some, 64, "the beginning of a prompt that has no room")
	require.Less(t, some, 1472)
	s.leaseless()

	// Bytes within messages. 0.5.6 sends these as a pickle, so that its engine computes all.
	s.kill()
	s.loseMemory()
	s.with("--size", "64MiB")
	s.args = append(s.args, "--lmcache-bodies")
	s.start()
	r.recovers(newer, 192, p)
	r.recovers(newer, 1472, kvPlan[3].prompts[0])
	for range 2 {
		r.loads(older, 0, p)
	}
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", newer.pid))
	require.NoError(t, err)
	for line := range strings.Lines(string(maps)) {
		require.False(t, strings.Contains(line, s.segment) && !strings.Contains(line, "(deleted)"), "the engine has mapped the memory: %s", line)
	}
	s.leaseless()
	for i, e := range both {
		require.Equal(t, failed[i], strings.Count(e.words(), "KV load failure"), "a look-up had found it")
		e.end()
	}
}

// small is an engine that has KV blocks for three of four prompts of 200 tokens, and has to preempt the third
// when their answers grow.
var small = []string{"--max-tokens", "40", "--set", "num_gpu_blocks_override=22", "--set", "max_model_len=640"}

// preempts has an engine answer four prompts at once, twice.
func (r *kvReference) preempts(e *kvEngine, seed uint64) {
	e.t.Helper()
	var prompts [][]uint32
	for i := range uint64(4) {
		prompts = append(prompts, kvPrompt(200, seed+i))
	}
	requests := salted("", prompts...)
	for round := range 2 {
		before := e.preempted
		cached := r.ask(e, requests)
		require.Greater(e.t, e.preempted, before, "no request was preempted")
		if round > 0 {
			require.Equal(e.t, []int{192, 192, 192, 192}, cached)
		}
	}
}

func testKVPreemption(t *testing.T, r *kvReference, url string) {
	s := newCacheServer(t, "--lmcache", url, "--lmcache-chunk-size", "64")
	s.start()
	for i, release := range []string{"0.5.6", "0.5.7rc2"} {
		e := newLMCache(t, release, url, small...)
		r.preempts(e, 40+10*uint64(i))
		s.leaseless()
		e.end()
	}
}

// testKVPrefixCaching: vLLM's own prefix cache has some blocks already, up to the middle of a chunk.
func testKVPrefixCaching(t *testing.T, r *kvReference, url string) {
	s := newCacheServer(t, "--lmcache", url, "--lmcache-chunk-size", "64")
	s.start()
	flags := append(slices.Clone(small), "--set", "enable_prefix_caching=true")
	engines := map[string]*kvEngine{}
	for _, release := range []string{"0.5.6", "0.5.7rc2"} {
		engines[release] = newLMCache(t, release, url, flags...)
	}
	releases := slices.Sorted(maps.Keys(engines))
	for i, release := range releases {
		e, other := engines[release], engines[releases[1-i]]
		p := kvPrompt(300, 60+uint64(i))
		r.loads(other, 0, p)
		r.loads(other, 288, p)   // its own nine blocks of 32 tokens
		r.loads(e, 64, p[:100])  // a chunk; then it has three blocks
		r.loads(e, 192, p[:200]) // from the middle of the second chunk on
		r.loads(e, 192, p[:200]) // its own six blocks
		r.loads(e, 256, p)       // starts where its own end
		r.loads(e, 288, p)       // its own
		s.leaseless()
	}
	for i, release := range releases {
		r.preempts(engines[release], 70+10*uint64(i))
		s.leaseless()
		engines[release].end()
	}
}

// testKVRoles: a consumer loads and stores nothing.
func testKVRoles(t *testing.T, r *kvReference, url string) {
	s := newCacheServer(t, "--lmcache", url, "--lmcache-chunk-size", "64")
	s.start()
	producer, consumer := newLMCacheAs(t, "kv_producer", "0.5.7rc2", url), newLMCacheAs(t, "kv_consumer", "0.5.6", url)
	for i := range uint64(2) {
		p := kvPrompt(1500, 80+i)
		r.loads(consumer, 0, p)
		r.loads(consumer, 0, p)
		r.loads(producer, 0, p)
		r.loads(consumer, 1472, p)
	}
	s.leaseless()
	producer.end()
	consumer.end()
}

// testKVWorkers: engines with two workers, each of which has half of each chunk.
func testKVWorkers(t *testing.T, r *kvReference, url string) {
	s := newCacheServer(t, "--lmcache", url, "--lmcache-chunk-size", "64")
	s.start()
	for i, release := range []string{"0.5.6", "0.5.7rc2"} {
		e := newLMCache(t, release, url, "--tp", "2")
		for _, step := range kvPlan {
			cached := r.ask(e, salted("", step.prompts...))
			if i > 0 {
				require.Equal(t, step.cached, cached)
			}
		}
		s.restart()
		step := kvPlan[len(kvPlan)-1]
		require.Equal(t, step.cached, r.ask(e, salted("", step.prompts...)))
		s.leaseless()
		e.end()
	}
}
