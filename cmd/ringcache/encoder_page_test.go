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

// TestEncoderPageCommands: the command takes every command line of docs/encoder.md, and the page's settings
// are those of the files in deploy.
func TestEncoderPageCommands(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "encoder.md"))
	require.NoError(t, err)
	require.Greater(t, parsesCommands(t, string(page)), 12, "the page has commands")

	config := regexp.MustCompile(`--ec-transfer-config \\\n\s*'(.*)'`).FindSubmatch(page)
	require.NotNil(t, config)
	require.True(t, json.Valid(config[1]))
	usesConnector(t, []string{"--ec-transfer-config", string(config[1])})
	script, err := os.ReadFile(filepath.Join("..", "..", "examples", "encoder", "engine.sh"))
	require.NoError(t, err)
	config = regexp.MustCompile(`--ec-transfer-config '(.*)'`).FindSubmatch(script)
	require.NotNil(t, config)
	usesConnector(t, []string{"--ec-transfer-config", string(config[1])})

	options, err := os.ReadFile(filepath.Join("..", "..", "python", "src", "ringcache", "vllm", "_options.py"))
	require.NoError(t, err)
	class, _, ok := strings.Cut(string(options[strings.Index(string(options), "class Options"):]), "@staticmethod")
	require.True(t, ok)
	for _, m := range regexp.MustCompile(`(?m)^    (\w+): (?:str|float|bool) = `).FindAllStringSubmatch(class, -1) {
		require.Regexp(t, "(?m)^\\| .*`"+m[1]+"`", string(page), "the page has each option of the connector")
	}
}
