//go:build e2e

package e2e

import (
	"bufio"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// lmcaches are the releases of LMCache that lmcache.sh prints.
var lmcaches = sync.OnceValues(func() (map[string]string, error) { return printed("./lmcache.sh") })

// kvEngine is a whole offline engine in a process of its own, see kv_engine.py.
type kvEngine struct {
	*process
	t     testing.TB
	stdin io.WriteCloser
	lines *bufio.Reader
	asked int // requests
	// preempted is how many requests were, so far.
	preempted int
}

type kvAnswer struct {
	Tokens []uint32
	Cached int // tokens of the prompt that were not computed
}

// newLMCache starts an engine whose KV a release of LMCache shares through a server.
func newLMCache(t testing.TB, release, url string, flags ...string) *kvEngine {
	t.Helper()
	return newLMCacheAs(t, "kv_both", release, url, flags...)
}

// newLMCacheAs is newLMCache for an engine with another role than to store and to load.
func newLMCacheAs(t testing.TB, role, release, url string, flags ...string) *kvEngine {
	t.Helper()
	folders, err := lmcaches()
	require.NoError(t, err)
	return newKV(t, folders["lmcache_"+release], map[string]any{
		"kv_connector": "LMCacheMPConnector", "kv_role": role, "kv_load_failure_policy": "recompute",
		"kv_connector_extra_config": map[string]any{"lmcache.mp.server_urls": []string{url}, "lmcache.mp.mq_timeout": 120, "lmcache.mp.heartbeat_interval": 2},
	}, flags...)
}

// newKV starts an engine with a kv_transfer_config, whose packages are in a folder; without a config nobody
// shares its KV.
func newKV(t testing.TB, packages string, config map[string]any, flags ...string) *kvEngine {
	t.Helper()
	k := kind{newest, "llava"}
	args := flags
	if config != nil {
		b, err := json.Marshal(config)
		require.NoError(t, err)
		args = append(slices.Clone(args), "--kv", string(b))
	}
	cmd := k.command(t, "kv_engine.py", args...)
	if packages != "" {
		cmd.Env = append(cmd.Env, "PYTHONPATH="+packages)
	}
	e := &kvEngine{t: t}
	var err error
	e.stdin, err = cmd.StdinPipe()
	require.NoError(t, err)
	stdout, write, err := os.Pipe()
	require.NoError(t, err)
	cmd.Stdout = write
	e.process = runs(t, "the engine", cmd)
	require.NoError(t, write.Close())
	e.lines = bufio.NewReader(stdout)
	t.Cleanup(func() { _ = e.stdin.Close(); e.kill(); _ = stdout.Close() })
	var first struct{ Ready bool }
	e.next(&first)
	require.True(t, first.Ready)
	return e
}

func (e *kvEngine) next(v any) {
	e.t.Helper()
	line, err := e.lines.ReadBytes('\n')
	require.NoError(e.t, err, "the engine has ended: %s", e.words())
	require.NoError(e.t, json.Unmarshal(line, v))
}

// ask has it answer prompts, all at once.
func (e *kvEngine) ask(prompts ...[]uint32) []kvAnswer {
	e.t.Helper()
	e.send(salted("", prompts...))
	return e.answered()
}

// kvRequest is a prompt as vLLM takes it.
type kvRequest struct {
	Tokens []uint32 `json:"prompt_token_ids"`
	Salt   string   `json:"cache_salt,omitempty"`
}

func salted(salt string, prompts ...[]uint32) (out []kvRequest) {
	for _, p := range prompts {
		out = append(out, kvRequest{p, salt})
	}
	return out
}

// send has it answer requests, all at once; answered waits for the answers.
func (e *kvEngine) send(requests []kvRequest) {
	e.t.Helper()
	b, err := json.Marshal(requests)
	require.NoError(e.t, err)
	_, err = e.stdin.Write(append(b, '\n'))
	require.NoError(e.t, err)
	e.asked = len(requests)
}

func (e *kvEngine) answered() []kvAnswer {
	e.t.Helper()
	var said struct {
		Answers   []kvAnswer
		Preempted int
	}
	e.next(&said)
	require.Len(e.t, said.Answers, e.asked)
	e.preempted = said.Preempted
	return said.Answers
}

// end ends it in order.
func (e *kvEngine) end() {
	e.t.Helper()
	require.NoError(e.t, e.stdin.Close())
	require.NoError(e.t, e.wait())
}

// kvPrompt returns a prompt of n tokens.
func kvPrompt(n int, seed uint64) []uint32 {
	r := rand.New(rand.NewPCG(seed, 1))
	out := make([]uint32, n)
	for i := range out {
		out[i] = 5 + uint32(r.IntN(195))
	}
	return out
}

// kvPlan is what engines are asked, and how many tokens of each prompt the second engine and later ones do
// not compute.
var kvPlan = []struct {
	prompts [][]uint32
	cached  []int
}{
	{[][]uint32{kvPrompt(200, 1)}, []int{192}},
	{[][]uint32{kvPrompt(200, 1)[:128]}, []int{127}}, // one is always computed
	{[][]uint32{append(kvPrompt(200, 1), kvPrompt(30, 2)...)}, []int{192}},
	{[][]uint32{kvPrompt(1500, 3)}, []int{1472}}, // in three steps
	{[][]uint32{kvPrompt(20, 4)}, []int{0}},      // no chunk
	{[][]uint32{kvPrompt(200, 1), kvPrompt(1500, 3), kvPrompt(300, 5), kvPrompt(200, 1)[:100]}, []int{192, 1472, 256, 64}},
}

// kvRight are the tokens of an engine that computes all of kvPlan. One such engine does for all tests.
func kvRight(t testing.TB) [][]kvAnswer {
	t.Helper()
	kvComputed.once.Do(func() {
		plain := newKV(t, "", nil)
		for _, step := range kvPlan {
			kvComputed.right = append(kvComputed.right, plain.ask(step.prompts...))
		}
		plain.end()
	})
	require.Len(t, kvComputed.right, len(kvPlan))
	return kvComputed.right
}

var kvComputed struct {
	once  sync.Once
	right [][]kvAnswer
}

// TestKV: engines with LMCache of two releases share KV through the daemon: a second engine need not compute
// what the first one has, also when the daemon was killed meanwhile; and each token is that of an engine that
// computes all of it. By TCP the daemon does not know whose processes engines are, so the engine that stores
// first is the one that has it.
func TestKV(t *testing.T) {
	right := kvRight(t)
	folder, err := os.MkdirTemp("", "kv") // short, as paths of sockets have to be
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(folder)) })
	grpc, ipc, tcp := "grpc+unix://"+filepath.Join(folder, "kv"), "ipc://"+filepath.Join(folder, "zmq"), "tcp://"+freeAddress(t)
	for _, c := range []struct {
		name          string
		first, second kvClient
	}{
		{"grpc", kvClient{"0.5.6", grpc}, kvClient{"0.5.7rc2", grpc}},
		{"zmq", kvClient{"0.5.7rc2", tcp}, kvClient{"0.5.6", ipc}},
	} {
		t.Run(c.name, func(t *testing.T) { testKV(t, right, c.first, c.second) })
	}
}

// kvClient is a release of LMCache, and where it finds the daemon.
type kvClient struct{ release, url string }

// freeAddress returns an address of this machine at which nobody listens.
func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

func testKV(t *testing.T, right [][]kvAnswer, one, other kvClient) {
	args := []string{"--lmcache", one.url, "--lmcache-chunk-size", "64"}
	if other.url != one.url {
		args = append(args, "--lmcache", other.url)
	}
	s := newCacheServer(t, args...)
	s.start()
	steps := func(e *kvEngine, known bool, from int) {
		t.Helper()
		for i, step := range kvPlan[from:] {
			i += from
			answers := e.ask(step.prompts...)
			for j, a := range answers {
				require.Equal(t, right[i][j].Tokens, a.Tokens, "step %d, prompt %d", i, j)
				if known {
					require.Equal(t, step.cached[j], a.Cached, "step %d, prompt %d", i, j)
				}
			}
		}
	}
	first := newLMCache(t, one.release, one.url)
	steps(first, false, 0)
	steps(first, true, 0)
	s.restart()
	steps(first, true, 0)

	second := newLMCache(t, other.release, other.url)
	steps(second, true, 0) // what the other release has stored
	s.restart()
	steps(second, true, 3)
	steps(first, true, 3)
	s.leaseless()

	// The tokens are those of the bytes in memory.
	s.negate()
	wrong := second.ask(kvPlan[3].prompts...)[0]
	require.Equal(t, kvPlan[3].cached[0], wrong.Cached)
	require.NotEqual(t, right[3][0].Tokens, wrong.Tokens)
	first.end()
	second.end()
}

// leaseless waits until no lease is left, and for less than the five minutes after which a lock ends by time.
func (s *cacheServer) leaseless() {
	s.t.Helper()
	bin, err := serveBinary()
	require.NoError(s.t, err)
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		out, err := exec.Command(bin, "serve", "status", "--json", "--socket", s.socket).Output()
		require.NoError(s.t, err)
		var status struct{ Leases []json.RawMessage }
		require.NoError(s.t, json.Unmarshal(out, &status))
		if status.Leases != nil && len(status.Leases) == 0 {
			return
		}
		require.True(s.t, time.Now().Before(end), "leases are left: %s", out)
	}
}

// negate changes the sign of all numbers in the segment that are as large as those of a KV cache. Texts and sizes look
// otherwise, so that the objects stay what they are.
func (s *cacheServer) negate() {
	s.t.Helper()
	path := filepath.Join("/dev/shm", s.segment)
	b, err := os.ReadFile(path)
	require.NoError(s.t, err)
	for i := 3; i < len(b); i += 4 {
		if top := b[i] &^ 0x80; top >= 0x3c && top <= 0x40 { // float32, little-endian
			b[i] ^= 0x80
		}
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	require.NoError(s.t, err)
	defer f.Close()
	_, err = f.WriteAt(b, 0)
	require.NoError(s.t, err)
}
