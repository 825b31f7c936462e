//go:build e2e

package e2e

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// newOffload starts an engine whose KV vLLM's own connector shares through a server, by our spec.
func newOffload(t testing.TB, s *cacheServer, flags ...string) *kvEngine {
	t.Helper()
	source, err := filepath.Abs(filepath.Join("..", "..", "python", "src"))
	require.NoError(t, err)
	// A busy machine may take its time; what is here is no proof of how long.
	extra := map[string]any{"spec_name": "KVOffloadingSpec", "spec_module_path": "ringcache.vllm", "socket": s.socket, "timeout": 30, "wait": 60}
	return newKV(t, source, map[string]any{"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": extra}, flags...)
}

// do has the engine do something that is no question.
func (e *kvEngine) do(command map[string]any) {
	e.t.Helper()
	b, err := json.Marshal(command)
	require.NoError(e.t, err)
	_, err = e.stdin.Write(append(b, '\n'))
	require.NoError(e.t, err)
	var said struct{ Ready bool }
	e.next(&said)
	require.True(e.t, said.Ready)
}

// offloadPlan is kvPlan, and how much of it is loaded in blocks of 32 when all of it is stored.
var offloadPlan = []struct {
	prompts [][]uint32
	cached  []int
}{
	{kvPlan[0].prompts, []int{192}},
	{kvPlan[1].prompts, []int{128}}, // vLLM loads all, and computes the last token all the same
	{kvPlan[2].prompts, []int{224}},
	{kvPlan[3].prompts, []int{1472}},
	{kvPlan[4].prompts, []int{0}}, // no block
	{kvPlan[5].prompts, []int{192, 1472, 288, 96}},
}

// follow goes through the plan. Each token must be right, and what was loaded what is known.
func follow(t testing.TB, e *kvEngine, right [][]kvAnswer, known bool) {
	t.Helper()
	for i, step := range offloadPlan {
		for j, a := range e.ask(step.prompts...) {
			require.Equal(t, right[i][j].Tokens, a.Tokens, "step %d, prompt %d", i, j)
			if known {
				require.Equal(t, step.cached[j], a.Cached, "step %d, prompt %d", i, j)
			}
		}
	}
}

// recovered asks, always with right tokens, until the step's prompt is loaded.
func recovered(t testing.TB, e *kvEngine, right [][]kvAnswer, step int) {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		a := e.ask(offloadPlan[step].prompts...)[0]
		require.Equal(t, right[step][0].Tokens, a.Tokens)
		if a.Cached == offloadPlan[step].cached[0] {
			return
		}
		require.True(t, time.Now().Before(end), "nothing is loaded: %s", e.words())
	}
}

// TestOffload: engines share KV through the daemon by vLLM's own connector and our spec. A second engine
// loads from its first request on what the first one has stored. The daemon is killed between requests,
// between the pin for a load and the load, and in front of a store, and all that is in memory is lost;
// each token is that of an engine that computes all.
func TestOffload(t *testing.T) {
	right := kvRight(t)
	s := newCacheServer(t, "--disk", t.TempDir())
	s.start()
	first := newOffload(t, s)
	follow(t, first, right, false)
	follow(t, first, right, true)
	s.restart()
	follow(t, first, right, true)

	second := newOffload(t, s, "--executor", "mp")
	follow(t, second, right, true)

	// Pinned, and loaded without a daemon.
	first.do(map[string]any{"kill": s.pid, "at": "load"})
	a := first.ask(offloadPlan[3].prompts...)[0]
	require.Equal(t, right[3][0].Tokens, a.Tokens)
	require.Equal(t, offloadPlan[3].cached[0], a.Cached)
	_ = s.wait() // it was killed
	follow(t, first, right, false)
	follow(t, second, right, false)
	require.Zero(t, first.ask(offloadPlan[3].prompts...)[0].Cached, "nothing is a hit of a daemon that is gone")
	s.start()
	recovered(t, first, right, 3)
	recovered(t, second, right, 3)
	follow(t, first, right, true)
	follow(t, second, right, true)

	// Killed in front of a store.
	prompt := kvPrompt(500, 6)
	first.do(map[string]any{"kill": s.pid, "at": "store"})
	computed := first.ask(prompt)[0]
	require.Zero(t, computed.Cached)
	_ = s.wait() // it was killed
	s.start()
	recovered(t, first, right, 3)
	again := second.ask(prompt)[0]
	require.Equal(t, computed.Tokens, again.Tokens)
	require.Equal(t, computed.Tokens, first.ask(prompt)[0].Tokens)
	require.Equal(t, 480, first.ask(prompt)[0].Cached)

	// All is on the disk alone, and the segment is another one.
	s.stop()
	s.loseMemory()
	s.start()
	recovered(t, first, right, 3)
	recovered(t, second, right, 3)
	follow(t, second, right, true)
	follow(t, first, right, true)

	// A reset is for the engine whose weights may have changed, and for no other one.
	first.do(map[string]any{"reset": true})
	require.Zero(t, first.ask(prompt)[0].Cached)
	for end := time.Now().Add(patience); first.ask(prompt)[0].Cached != 480; { // its worker tries again to connect before a store
		require.True(t, time.Now().Before(end), "it does not store again")
	}
	require.Equal(t, 480, second.ask(prompt)[0].Cached)
	s.leaseless()

	// The tokens are those of the bytes in memory.
	s.negate()
	wrong := second.ask(offloadPlan[3].prompts...)[0]
	require.Equal(t, offloadPlan[3].cached[0], wrong.Cached)
	require.NotEqual(t, right[3][0].Tokens, wrong.Tokens)
	first.end()
	second.end()
	s.leaseless()
}

// TestOffloadWithoutRoom: an engine that is short of blocks and a memory smaller than its prompts change no
// token, and leave no lease. What is there is a prefix: no prompt evicts its own head.
func TestOffloadWithoutRoom(t *testing.T) {
	right := kvRight(t)
	s := newCacheServer(t, "--size", "2MiB")
	s.start()
	e := newOffload(t, s, "--set", "num_gpu_blocks_override=60", "--set", "max_model_len=1600")
	for range 3 {
		follow(t, e, right, false)
	}
	long := offloadPlan[3].prompts[0]
	e.ask(long)
	loaded := e.ask(long)[0]
	require.Equal(t, right[3][0].Tokens, loaded.Tokens)
	require.Positive(t, loaded.Cached)
	require.Less(t, loaded.Cached, offloadPlan[3].cached[0])
	t.Logf("%d tokens are loaded", loaded.Cached)
	e.end()
	s.leaseless()
}

// TestOffloadWorkers: each of two tensor-parallel workers stores its part and loads it.
func TestOffloadWorkers(t *testing.T) {
	right := kvRight(t)
	s := newCacheServer(t)
	s.start()
	e := newOffload(t, s, "--tp", "2")
	follow(t, e, right, false)
	follow(t, e, right, true)
	e.end()
	s.leaseless()
}

// TestOffloadPrefixCaching: blocks that vLLM has itself are not loaded, and those behind them are.
func TestOffloadPrefixCaching(t *testing.T) {
	right := kvRight(t)
	s := newCacheServer(t)
	s.start()
	other := newOffload(t, s)
	follow(t, other, right, false)
	other.end()
	e := newOffload(t, s, "--set", "enable_prefix_caching=true")
	long := offloadPlan[3].prompts[0]
	require.Equal(t, 320, e.ask(slices.Concat(long[:320], kvPrompt(40, 8)))[0].Cached)
	require.Equal(t, 1472, e.ask(long)[0].Cached)
	follow(t, e, right, false)
	require.NotContains(t, e.words(), "Traceback")
	e.end()
	s.leaseless()
}
