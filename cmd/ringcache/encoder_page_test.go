package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
)

// parsesCommands reports how many command lines a page has, of which the command takes every one.
func parsesCommands(t *testing.T, page string) int {
	t.Helper()
	command := regexp.MustCompile(`(?:^|[\s|])(?:bin/)?ringcache ((?:serve|warm|tier|sweep|kv|migrate|lmcache-config|` +
		`directory|ls|inspect|map|top|doctor|check|completion|man)\b[^|>&#]*)`)
	n := 0
	for line := range strings.Lines(page) {
		quoted := regexp.MustCompile("`([^`]*)`").FindAllStringSubmatch(line, -1)
		texts := []string{}
		if strings.HasPrefix(line, "    ") {
			texts = append(texts, line)
		}
		for _, q := range quoted {
			texts = append(texts, q[1])
		}
		for _, text := range texts {
			m := command.FindStringSubmatch(text)
			if m == nil || strings.Contains(m[1], "...") {
				continue
			}
			n++
			args := strings.Fields(strings.ReplaceAll(m[1], `"`, ""))
			parser, err := kong.New(newCommands(), options()...)
			require.NoError(t, err)
			if len(args) == 1 && args[0] != "serve" || strings.Join(args, " ") == "sweep --remove" {
				continue // a name of the command, without its arguments
			}
			_, err = parser.Parse(args)
			require.NoError(t, err, "%q", args)
		}
	}
	return n
}

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
