package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOffloadingPageOptions: the configuration on docs/offloading.md is JSON with the names of the Python package, and the page has
// each of the spec's options, as docs/encoder.md has those of the connector.
func TestOffloadingPageOptions(t *testing.T) {
	read := func(path ...string) string {
		b, err := os.ReadFile(filepath.Join(append([]string{"..", ".."}, path...)...))
		require.NoError(t, err)
		return string(b)
	}
	page, options := read("docs", "offloading.md"), read("python", "src", "ringcache", "vllm", "_options.py")
	m := regexp.MustCompile(`(?s)--kv-transfer-config \\\n\s*'(.*?)'`).FindStringSubmatch(page)
	require.NotNil(t, m)
	var config struct {
		Connector string `json:"kv_connector"`
		Role      string `json:"kv_role"`
		Extra     struct {
			Spec   string `json:"spec_name"`
			Module string `json:"spec_module_path"`
		} `json:"kv_connector_extra_config"`
	}
	require.NoError(t, json.Unmarshal([]byte(m[1]), &config))
	require.Equal(t, "OffloadingConnector", config.Connector)
	require.Equal(t, "kv_both", config.Role)
	require.Equal(t, "ringcache.vllm", config.Extra.Module)
	require.Contains(t, read("python", "src", "ringcache", "vllm", "offloading.py"), "\nclass "+config.Extra.Spec+"(")
	fields := regexp.MustCompile(`(?m)^    (\w+): (?:str|float|bool) = `).FindAllStringSubmatch(options, -1)
	require.Len(t, fields, 8)
	for _, f := range fields {
		require.Regexp(t, "(?m)^\\| .*`"+f[1]+"`", page, "the page has each option")
	}
}
