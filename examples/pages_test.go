// Package examples has the tests of the pages that show a whole program of this folder.
package examples

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	fence   = regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```$")
	spaces  = regexp.MustCompile(` +`)
	process = regexp.MustCompile(`(?m)^(tiers-example -) \d+ `)
)

// block is a fenced block of a page.
type block struct{ language, text string }

// page returns the blocks of a page, whose programs, by language, are the files of this folder.
func page(t *testing.T, name string, programs map[string]string) []block {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "docs", name))
	require.NoError(t, err)
	var out []block
	for _, m := range fence.FindAllStringSubmatch(string(text), -1) {
		b := block{m[1], m[2]}
		if file := programs[b.language]; file != "" {
			program, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, string(program), b.text, "docs/%s has the program %s", name, file)
			delete(programs, b.language)
		}
		out = append(out, b)
	}
	require.Empty(t, programs, "docs/%s has all of its programs", name)
	return out
}

// execute runs the commands of the console blocks from the root of the repository, after change changed their lines,
// and compares what they print, after shown changed that, with the page.
func execute(t *testing.T, blocks []block, env []string, change, shown func(string) string) {
	t.Helper()
	n := 0
	for _, b := range blocks {
		if b.language != "console" {
			continue
		}
		for _, part := range strings.Split("\n"+b.text, "\n$ ")[1:] {
			command, want, _ := strings.Cut(strings.TrimSuffix(part, "\n")+"\n", "\n")
			cmd := exec.CommandContext(t.Context(), "sh", "-c", change(command))
			cmd.Dir, cmd.Env = "..", append(os.Environ(), env...)
			got, _ := cmd.CombinedOutput() // one is killed, and the output has that
			require.Equal(t, shown(want), shown(string(got)), "%s", command)
			n++
		}
	}
	require.Positive(t, n, "the page has commands")
}

func same(s string) string { return s }

func onlyLinux(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("segments need Linux")
	}
}

// build builds a command of the repository into a folder.
func build(t *testing.T, folder, pkg string) string {
	t.Helper()
	program := filepath.Join(folder, filepath.Base(pkg))
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, pkg).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return program
}

// TestTiersPage: what the program and the commands of docs/tiers.md print is what the page says, from the
// kill to the last file.
func TestTiersPage(t *testing.T) {
	onlyLinux(t)
	blocks := page(t, "tiers.md", map[string]string{"go": "tiers/main.go"})
	dir, shm, bin := t.TempDir(), t.TempDir(), t.TempDir()
	build(t, bin, "../cmd/ringcache")
	change := strings.NewReplacer(
		"/tmp/", dir+"/",
		"./examples/tiers", "./examples/tiers --shm-dir "+shm+" --disk "+dir+"/tiers-example",
		"sweep tiers-example", "sweep tiers-example --dir "+shm,
		"shm:tiers-example", "shm:tiers-example --dir "+shm,
	)
	shown := func(s string) string { // columns are as wide as the number of a process
		var lines []string
		for line := range strings.Lines(spaces.ReplaceAllString(s, " ")) {
			lines = append(lines, strings.TrimSpace(line))
		}
		return process.ReplaceAllString(strings.Join(lines, "\n"), "$1 PID ")
	}
	execute(t, blocks, []string{"PATH=" + bin + ":" + os.Getenv("PATH")}, change.Replace, shown)
	for _, folder := range []string{dir, shm} {
		left, err := os.ReadDir(folder)
		require.NoError(t, err)
		require.Empty(t, left, "the last commands of the page remove everything")
	}
}

// TestEmbeddingPage: both programs of docs/embedding.md, and what they print.
func TestEmbeddingPage(t *testing.T) {
	onlyLinux(t)
	blocks := page(t, "embedding.md", map[string]string{"go": "embedding/main.go", "python": "embedding/reader.py"})
	python := os.Getenv("TEST_PYTHON")
	if python == "" {
		python = "python3"
	}
	if out, err := exec.CommandContext(t.Context(), python, "-c", "import msgspec, numpy").CombinedOutput(); err != nil {
		t.Skipf("%s has no msgspec and numpy (TEST_PYTHON=$(scripts/python-env.sh) names one that has): %v: %s", python, err, out)
	}
	source, err := filepath.Abs("../python/src")
	require.NoError(t, err)
	change := func(s string) string {
		return strings.Replace(s, "./examples/embedding", "./examples/embedding --python "+python, 1)
	}
	execute(t, blocks, []string{"PYTHONPATH=" + source}, change, same)
}

// TestEmbeddingWithoutPhotos: a command line without photos is wrong, which is said before there is a reader.
func TestEmbeddingWithoutPhotos(t *testing.T) {
	program := build(t, t.TempDir(), "./embedding")
	for _, arguments := range [][]string{nil, {"--python", "none"}} {
		out, err := exec.CommandContext(t.Context(), program, arguments...).CombinedOutput()
		failed, ok := errors.AsType[*exec.ExitError](err)
		require.True(t, ok, "%v", err)
		require.Equal(t, 2, failed.ExitCode())
		require.Equal(t, "usage: embedding [--python PYTHON] PHOTO...\n", string(out))
	}
}

// TestEmbeddingWhenOneSideDies: what docs/embedding.md says of the ends of both programs. A shell, which has got its
// first question, stands in for the reader.
func TestEmbeddingWhenOneSideDies(t *testing.T) {
	onlyLinux(t)
	bin := t.TempDir()
	program, ringcache := build(t, bin, "./embedding"), build(t, bin, "../cmd/ringcache")
	for name, c := range map[string]struct {
		reader, says string
		stays        bool // the segment
	}{
		"the reader is killed":        {"kill -KILL $$", "embedding: the reader does not answer", false},
		"the reader sees other bytes": {`echo '{"same": false}'; exec cat >/dev/null`, "the reader saw other bytes", false},
		"SIGTERM":                     {"kill -TERM $PPID; exec cat >/dev/null", "embedding: the reader does not answer", false},
		"SIGINT":                      {"kill -INT $PPID; exec cat >/dev/null", "embedding: the reader does not answer", false},
		"SIGKILL":                     {"kill -KILL $PPID; cat >/dev/null; echo end of input >&2", "end of input", true},
	} {
		t.Run(name, func(t *testing.T) {
			python := filepath.Join(t.TempDir(), "python")
			require.NoError(t, os.WriteFile(python, []byte("#!/bin/sh\nread setup\nread question\n"+c.reader+"\n"), 0o700))
			var out bytes.Buffer
			cmd := exec.CommandContext(t.Context(), program, "--python", python, "media/coffee.png")
			cmd.Stderr = &out // of both, so Wait waits for both
			require.Error(t, cmd.Run())
			segment := fmt.Sprintf("ringcache-embedding-%d", cmd.Process.Pid)
			require.Contains(t, out.String(), c.says)
			if c.stays {
				require.FileExists(t, "/dev/shm/"+segment)
				out, err := exec.CommandContext(t.Context(), ringcache, "sweep", segment, "--remove").CombinedOutput()
				require.NoError(t, err, "%s", out)
			}
			require.NoFileExists(t, "/dev/shm/"+segment)
			require.NoFileExists(t, "/dev/shm/"+segment+".ctl")
		})
	}
}
