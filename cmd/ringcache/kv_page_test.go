package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// usesLMCache checks the setting of an engine with LMCache, and returns the address of the server.
func usesLMCache(t *testing.T, args []string) string {
	t.Helper()
	for i, a := range args {
		if a != "--kv-transfer-config" {
			continue
		}
		var config struct {
			Connector string         `json:"kv_connector"`
			Role      string         `json:"kv_role"`
			Policy    string         `json:"kv_load_failure_policy"`
			Extra     map[string]any `json:"kv_connector_extra_config"`
		}
		require.NoError(t, json.Unmarshal([]byte(args[i+1]), &config))
		require.Equal(t, []string{"LMCacheMPConnector", "kv_both", "recompute"}, []string{config.Connector, config.Role, config.Policy})
		require.Equal(t, "engine_driven", config.Extra["lmcache.mp.mp_transfer_mode"])
		require.Less(t, config.Extra["lmcache.mp.mq_timeout"], 60.0, "the default lets requests wait for minutes")
		require.Less(t, config.Extra["lmcache.mp.heartbeat_interval"], 10.0)
		servers := config.Extra["lmcache.mp.server_urls"].([]any)
		require.Len(t, servers, 1)
		return servers[0].(string)
	}
	t.Fatalf("%q has no --kv-transfer-config", args)
	return ""
}

// TestKVPageCommands: the command takes every command line of docs/kv.md, the engine's setting is one, and the page
// has all settings for LMCache.
func TestKVPageCommands(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "..", "docs", "kv.md"))
	require.NoError(t, err)
	page := string(b)
	require.Greater(t, parsesCommands(t, page), 12, "the page has commands")

	config := regexp.MustCompile(`(?s)--kv-transfer-config \\\n\s*'(.*?)'`).FindStringSubmatch(page)
	require.NotNil(t, config)
	url := usesLMCache(t, []string{"--kv-transfer-config", config[1]})
	require.Contains(t, page, "--lmcache "+strings.Replace(url, "/home/me", "$HOME", 1))
	for _, s := range []string{"lmcache", "lmcache-chunk-size", "lmcache-engine", "lmcache-bodies"} {
		require.Contains(t, page, "`--"+s, "the page has each setting")
	}
	for _, s := range []string{"kv_load_failure_policy", "lmcache.mp.mq_timeout", "lmcache.mp.heartbeat_interval"} {
		require.Contains(t, page, "| `"+s+"` |")
	}
}
