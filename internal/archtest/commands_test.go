package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// runBy has, for each page with programs or with what commands print, the test that runs them. The command lines of ringcache on all
// other pages are parsed by TestCommandLinesOfDocuments of cmd/ringcache.
var runBy = map[string][2]string{
	"docs/agent.md":               {"cmd/ringcache/documents_test.go", "TestAgentPage"},
	"docs/commands.md":            {"cmd/ringcache/commands_page_test.go", "TestCommandsPage"},
	"docs/daemon.md":              {"daemon/page_test.go", "TestServerAnswersThePage"},
	"docs/embedding.md":           {"examples/pages_test.go", "TestEmbeddingPage"},
	"docs/scale.md":               {"cmd/ringcache/serve_plan_test.go", "TestScalePage"},
	"docs/test-your-own-ring.md":  {"examples/pages_test.go", "TestRingPageBlocks"},
	"docs/tiers.md":               {"examples/pages_test.go", "TestTiersPage"},
	"docs/tutorials/first-hit.md": {"interop/e2e/tutorial_test.go", "TestTutorialFirstHit"},
}

// TestEveryPageIsRun: a page with fenced blocks, or with the prompt of a shell, has a test that runs them.
func TestEveryPageIsRun(t *testing.T) {
	runs := regexp.MustCompile("(?m)^(?:```[a-z]|    \\$ )")
	all, needed := documents(t), map[string]bool{}
	for page, text := range all {
		if strings.HasPrefix(page, "docs/") && runs.MatchString(text) {
			needed[page] = true
			assert.Contains(t, runBy, page, "name the test that runs what the page shows")
		}
	}
	for page, test := range runBy {
		assert.True(t, needed[page], "%s shows nothing that is run", page)
		source, err := os.ReadFile(filepath.Join("..", "..", test[0]))
		require.NoError(t, err)
		assert.Contains(t, string(source), "\nfunc "+test[1]+"(t *testing.T)", "the test of %s", page)
		assert.Contains(t, string(source), filepath.Base(page), "the test of %s reads the page", page)
	}
}

// TestCommandsOfDocumentsNameWhatExists: targets of make, packages and tests of the go command, and files of the repository that
// command lines of documents begin with, or hand to Python.
func TestCommandsOfDocumentsNameWhatExists(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join("..", "..", "Makefile"))
	require.NoError(t, err)
	var tests strings.Builder
	for _, text := range files(t, ".go") {
		tests.WriteString(text)
	}
	exists := func(page, name string) {
		_, err := os.Stat(filepath.Join("..", "..", strings.TrimSuffix(name, "/...")))
		assert.NoError(t, err, "%s names %s", page, name)
	}
	target := regexp.MustCompile(`^make ([a-z][a-z0-9-]*)`)
	gone := regexp.MustCompile(`^go (?:run|test|build|generate)\b.*?\s(\./[a-z0-9_/.]+)`)
	test := regexp.MustCompile(`-run '?\^?((?:Test|Fuzz|Benchmark)\w+)`)
	program := regexp.MustCompile(`^(?:python3 |\./)?((?:interop|scripts|examples|bench|python)/[\w/.-]+)(?:\s|$)`)
	assigned := regexp.MustCompile(`^(?:[A-Za-z_]+=(?:'[^']*'|"[^"]*"|\$\([^)]*\)|\S*)\s+)+`)
	seen := map[string]int{}
	for page, text := range documents(t) {
		var lines []string
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "    ") {
				lines = append(lines, strings.TrimPrefix(strings.TrimSpace(line), "$ "))
			}
		}
		for _, m := range inlineCode.FindAllStringSubmatch(text, -1) {
			lines = append(lines, m[1])
		}
		for _, line := range lines {
			line = assigned.ReplaceAllString(line, "")
			if m := target.FindStringSubmatch(line); m != nil {
				assert.Regexp(t, `(?m)^`+regexp.QuoteMeta(m[1])+`:`, string(makefile), "%s: make %s", page, m[1])
				seen["make"]++
			}
			if strings.HasPrefix(page, "bench/") || strings.Contains(line, "...") && !strings.Contains(line, "/...") {
				continue // another module; not to be typed as it is
			}
			if m := gone.FindStringSubmatch(line); m != nil && !strings.Contains(line, "bench") {
				exists(page, m[1])
				seen["go"]++
			}
			if m := test.FindStringSubmatch(line); m != nil && strings.HasPrefix(line, "go test") {
				assert.Contains(t, tests.String(), "func "+m[1], "%s: %s", page, line)
				seen["test"]++
			}
			if m := program.FindStringSubmatch(line); m != nil {
				exists(page, m[1])
				seen["file"]++
			}
		}
	}
	t.Log(seen)
	require.Greater(t, seen["make"], 30)
	require.Greater(t, seen["go"], 20)
	require.Greater(t, seen["test"], 10)
	require.Greater(t, seen["file"], 20)
}
