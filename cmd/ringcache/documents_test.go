package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
)

// pageCommand is a command line of ringcache in a document.
type pageCommand struct {
	args    []string
	inBlock bool // to be typed as it is; within a sentence it may be the beginning of one
}

var (
	inCode    = regexp.MustCompile("`([^`]+)`")
	shellWord = regexp.MustCompile(`(?:'[^']*'|"[^"]*"|[^\s'"])+`)
	quotes    = regexp.MustCompile(`['"]`)
	// What ends a command in a shell.
	shellEnd = regexp.MustCompile(`\s#|[|>&;<)]`)
)

// commandNames returns the names of all commands.
var commandNames = sync.OnceValue(func() (names []string) {
	for _, n := range kong.Must(newCommands(), options()...).Model.Children {
		names = append(names, regexp.QuoteMeta(n.Name))
	}
	return names
})

// pageCommands returns the command lines of a page, in blocks and within sentences.
func pageCommands(t *testing.T, page string) (all []pageCommand) {
	t.Helper()
	called := regexp.MustCompile(`(?:^|[\s|(])(?:\./)?(?:bin/)?ringcache ((?:` + strings.Join(commandNames(), "|") + `)\b.*)`)
	find := func(text string, inBlock bool) {
		m := called.FindStringSubmatch(text)
		if m == nil {
			return
		}
		rest := m[1]
		// A quoted text may contain what ends a command elsewhere.
		masked := regexp.MustCompile(`'[^']*'|"[^"]*"`).ReplaceAllStringFunc(rest, func(s string) string { return strings.Repeat("x", len(s)) })
		if at := shellEnd.FindStringIndex(masked); at != nil {
			rest = rest[:at[0]]
		}
		if strings.Contains(rest, "...") {
			return
		}
		var args []string
		for _, word := range shellWord.FindAllString(rest, -1) {
			args = append(args, quotes.ReplaceAllString(word, ""))
		}
		all = append(all, pageCommand{args, inBlock})
	}
	fenced, prompts := false, false // a block with prompts has output, too
	for line := range strings.Lines(strings.ReplaceAll(page, "\\\n", " ")) {
		switch text, prompt := strings.CutPrefix(strings.TrimSpace(line), "$ "); {
		case strings.HasPrefix(text, "```"):
			fenced, prompts = !fenced, false
		case fenced || strings.HasPrefix(line, "    "):
			prompts = prompts || prompt
			if prompt || !prompts {
				find(text, true)
			}
		default:
			prompts = prompts && text == "" // an empty line does not end a block
			for _, q := range inCode.FindAllStringSubmatch(line, -1) {
				find(q[1], false)
			}
		}
	}
	return all
}

// parsesCommands reports how many command lines a page has, of which the command takes every one.
func parsesCommands(t *testing.T, page string) int {
	t.Helper()
	lines := pageCommands(t, page)
	parser, err := kong.New(newCommands(), options()...) // each Parse begins with the defaults
	require.NoError(t, err)
	for _, l := range lines {
		_, err := parser.Parse(l.args)
		if err != nil && !l.inBlock && regexp.MustCompile(`expected |missing `).MatchString(err.Error()) {
			continue // the name of a command, without its arguments
		}
		require.NoError(t, err, "%q", l.args)
	}
	return len(lines)
}

// TestCommandLinesOfDocuments: the command takes every command line of every document.
func TestCommandLinesOfDocuments(t *testing.T) {
	root := os.DirFS(filepath.Join("..", ".."))
	lines, pages := 0, 0
	var with []string
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "bin") {
			return fs.SkipDir
		}
		if path.Ext(name) != ".md" {
			return nil
		}
		page, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		t.Run(name, func(t *testing.T) {
			if n := parsesCommands(t, string(page)); n > 0 {
				lines, with = lines+n, append(with, name)
			}
		})
		pages++
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, pages, 30)
	require.Greater(t, lines, 150)
	for _, page := range []string{"README.md", "docs/operations.md", "docs/tiers.md", "docs/test-your-own-ring.md"} {
		require.True(t, slices.Contains(with, page), "%s has commands", page)
	}
	t.Logf("%d command lines in %d of %d documents", lines, len(with), pages)
}

// TestCommandLinesAreFound, and not taken for something else.
func TestCommandLinesAreFound(t *testing.T) {
	for text, want := range map[string][]string{
		"    $ ringcache ls --json | jq .\n":                                 {"ls", "--json"},
		"    X=1 bin/ringcache fuzz ring --system 'a | b' # why\n":           {"fuzz", "ring", "--system", "a | b"},
		"```console\n$ ringcache serve --size 1GiB \\\n  --disk /d &\n```\n": {"serve", "--size", "1GiB", "--disk", "/d"},
		"by `ringcache sweep` or\n":                                          {"sweep"},
		"ringcache serve is no command here\n":                               nil,
		"    go build -o bin/ringcache ./cmd/ringcache\n":                    nil,
	} {
		var got []string
		for _, l := range pageCommands(t, text) {
			got = append(got, l.args...)
		}
		require.Equal(t, want, got, text)
	}
}

// TestAgentPage: what docs/agent.md shows of a shell.
func TestAgentPage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "agent.md"))
	require.NoError(t, err)
	shown := regexp.MustCompile(`(?m)^    \$ (.*)\n((?:    [^$\n].*\n)+)`).FindAllStringSubmatch(string(text), -1)
	require.Len(t, shown, 1)
	bin := t.TempDir()
	require.NoError(t, os.Symlink(os.Args[0], filepath.Join(bin, "ringcache")))
	cmd := exec.Command("sh", "-c", shown[0][1])
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "RINGCACHE_TEST_COMMAND=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, regexp.MustCompile(`(?m)^    `).ReplaceAllString(shown[0][2], ""), string(out))
}
