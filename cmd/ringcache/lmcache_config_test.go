package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLMCacheConfig: what is printed for a configuration of LMCache is one that the daemon takes.
func TestLMCacheConfig(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	disk := filepath.Join(dir, "old")
	environ := file("environ", "PYTHONHASHSEED=0\x00LMCACHE_MAX_LOCAL_CPU_SIZE=0.0009765625\x00HOME=/\x00")
	for name, args := range map[string][]string{
		"engine": {"--environ", environ, file("lmcache.yaml", "chunk_size: 512\nmax_local_cpu_size: 5\n"+
			"local_disk: file://"+disk+"\nmax_local_disk_size: 0.5\n")},
		"server": {"--", "lmcache", "server", "--chunk-size", "512", "--l1-size-gb", "0.0009765625",
			"--eviction-policy", "LRU", "--supported-transfer-mode", "auto",
			"--l2-adapter", `{"type": "fs_native", "base_path": "` + disk + `", "max_capacity_gb": 0.5}`},
	} {
		out, errOut, code := ringcache(t, append([]string{"lmcache-config"}, args...)...)
		require.Zero(t, code, errOut)
		require.NotContains(t, out, "warning", name)
		translated := file(name+".yaml", out)
		out, errOut, code = ringcache(t, "serve", "--config", translated, "--print-config")
		require.Zero(t, code, errOut)
		for _, line := range []string{
			"lmcache-chunk-size: 512", "size: 1MiB", "disk: " + filepath.Join(disk, "ringcache"), "disk-size: 512MiB",
		} {
			require.Contains(t, out, "\n"+line+"\n", name)
		}
		s := newServing(t)
		check := []string{"serve", "check", "--config", translated, "--lmcache", "grpc+unix://" + s.socket + ".kv"}
		out, errOut, code = ringcache(t, append(check, s.flags...)...)
		require.Zero(t, code, out+errOut)
		require.Contains(t, out, "ok: disk: ")
	}
}

// TestLMCacheConfigOfLM: the lists that are printed are lists for the daemon.
func TestLMCacheConfigOfLM(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lmcache.yaml")
	require.NoError(t, os.WriteFile(file, []byte("remote_url: lm://old.example:65432\n"), 0o600))
	out, errOut, code := ringcache(t, "lmcache-config", file)
	require.Zero(t, code, errOut)
	require.Contains(t, out, "engines have to be pointed to lm://127.0.0.1:65432")
	require.NoError(t, os.WriteFile(file, []byte(out), 0o600))
	out, errOut, code = ringcache(t, "serve", "--config", file, "--print-config")
	require.Zero(t, code, errOut)
	require.Regexp(t, `\nlm: *(\n *- |\[)127.0.0.1:65432\]?\n`, out)
	require.Contains(t, out, "\nlm-from: old.example:65432\n")
}

// TestLMCacheConfigRefuses: everything that is wrong is named with its line, and nothing is printed.
func TestLMCacheConfigRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lmcache.yaml")
	for text, want := range map[string]string{
		"chunk_sise: 5\nlocal_cpu: often": "is chunk_size meant?\n" +
			"                  local_cpu (line 2 of " + file + `): "often" is false`,
		"chunk_size: [1]":                      "chunk_size (line 1 of " + file + "): is a whole number",
		"remote_url: redis://h:port":           "this configuration of LMCache is none of the daemon",
		"a: [":                                 "is no YAML file",
		"enable_p2p: true\nremote_url: lm://h": "enable_p2p needs enable_controller",
	} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		out, errOut, code := ringcache(t, "lmcache-config", file)
		require.Equal(t, 78, code, errOut)
		require.Empty(t, out)
		require.Contains(t, errOut, want)
	}
	_, errOut, code := ringcache(t, "lmcache-config", "--", "lmcache", "server")
	require.Equal(t, 78, code)
	require.Contains(t, errOut, "lmcache server needs --l1-size-gb")
	_, errOut, code = ringcache(t, "lmcache-config", file+".none")
	require.Equal(t, 78, code)
	require.Contains(t, errOut, "no such file")
	_, errOut, code = ringcache(t, "lmcache-config", "--workers=0")
	require.Equal(t, 1, code)
	require.Contains(t, errOut, "at least 1")
}
