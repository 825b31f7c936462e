//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// newStockServer starts LMCache's own server, with a folder below it, and returns its address.
func newStockServer(t testing.TB, release, folder string) (*process, string) {
	t.Helper()
	ports := make([]string, 2)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		ports[i] = strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
		require.NoError(t, l.Close())
	}
	adapter, err := json.Marshal(map[string]string{"type": "fs", "base_path": folder})
	require.NoError(t, err)
	envs, err := environment()
	require.NoError(t, err)
	folders, err := lmcaches()
	require.NoError(t, err)
	cmd := exec.Command(envs["python"], "-m", "lmcache.cli.main", "server", "--transport", "grpc", "--host", "127.0.0.1", "--port", ports[0],
		"--http-port", ports[1], "--shm-name", "ringcache-e2e-stock-"+ports[0], "--supported-transfer-mode", "engine_driven", "--l1-size-gb", "0.1",
		"--no-l1-use-lazy", "--eviction-policy", "LRU", "--chunk-size", "64", "--l2-adapter", string(adapter))
	cmd.Env = append(os.Environ(), "PYTHONPATH="+folders["lmcache_"+release], "LMCACHE_TRACK_USAGE=false", "LMCACHE_DISABLE_BANNER=1")
	p := runs(t, "lmcache server", cmd)
	t.Cleanup(func() {
		left, err := filepath.Glob("/dev/shm/ringcache-e2e-stock-" + ports[0] + "*")
		require.NoError(t, err)
		for _, f := range left {
			require.NoError(t, os.Remove(f))
		}
	})
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", "127.0.0.1:"+ports[0])
		if err == nil {
			_ = c.Close()
		}
		return err == nil || !p.running()
	}, patience, 50*time.Millisecond, "lmcache server does not listen")
	require.True(t, p.running(), "lmcache server has ended: %s", p.words())
	return p, "grpc://127.0.0.1:" + ports[0]
}

// TestKVMigrate: what LMCache's own server has in a folder is copied for the daemon: an engine that never had
// the prompt loads it, and its tokens are equal.
func TestKVMigrate(t *testing.T) {
	folder, err := os.MkdirTemp("", "kv") // short, as paths of sockets have to be
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(folder)) })
	old, disk, layouts := filepath.Join(folder, "old"), filepath.Join(folder, "disk"), filepath.Join(folder, "layouts.json")
	require.NoError(t, os.Mkdir(old, 0o700))
	const chunks = 1500 / 64

	stock, url := newStockServer(t, "0.5.6", old)
	first := newLMCache(t, "0.5.6", url)
	right := first.ask(kvPrompt(1500, 3))[0]
	require.Eventually(t, func() bool {
		files, err := filepath.Glob(filepath.Join(old, "*.data"))
		return err == nil && len(files) == chunks
	}, patience, 50*time.Millisecond, "lmcache server writes its files")
	first.end()
	stock.signal(syscall.SIGTERM)
	_ = stock.wait() // its exit status is its own matter

	url = "grpc+unix://" + filepath.Join(folder, "kv")
	s := newCacheServer(t, "--lmcache", url, "--lmcache-chunk-size", "64")
	s.start()
	second := newLMCache(t, "0.5.7rc2", url)
	ringcache := func(args ...string) []byte {
		t.Helper()
		bin, err := serveBinary()
		require.NoError(t, err)
		cmd := exec.Command(bin, args...)
		var errOut bytes.Buffer
		cmd.Stderr = &errOut
		out, err := cmd.Output()
		require.NoError(t, err, "%s%s", out, errOut.String())
		return out
	}
	require.NoError(t, os.WriteFile(layouts, ringcache("kv", "ls", "--json", "--socket", s.socket), 0o600))
	s.stop()
	require.Contains(t, string(ringcache("migrate", "--layouts", layouts, old, disk)), strconv.Itoa(chunks)+" objects copied")
	s.args = append(s.args, "--disk", disk)
	s.start()
	tokens, err := json.Marshal(kvPrompt(1500, 3))
	require.NoError(t, err)
	prompt := filepath.Join(folder, "prompt.json")
	require.NoError(t, os.WriteFile(prompt, tokens, 0o600))
	var found []struct{ Found int }
	require.NoError(t, json.Unmarshal(ringcache("kv", "find", "--json", "--socket", s.socket, "-f", prompt), &found))
	require.Equal(t, chunks*64, found[0].Found)

	var answer kvAnswer
	require.Eventually(t, func() bool { // its connector has to notice that the server is back
		answer = second.ask(kvPrompt(1500, 3))[0]
		require.Equal(t, right.Tokens, answer.Tokens)
		return answer.Cached > 0
	}, patience, time.Millisecond)
	require.Equal(t, chunks*64, answer.Cached)
	second.end()
}
