// Package examples has the tests of the pages that show a whole program of this folder.
package examples

import (
	"bytes"
	"encoding/json"
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

// ringPage is what the Go blocks of docs/test-your-own-ring.md take as given, in their order: the file in front of each, or nothing for
// a block that is a whole file, and what stands in the place of what is left to the reader.
var ringPage = []struct {
	given   string
	instead [2]string
}{
	{"", [2]string{`"example.com/myring"`, `"github.com/ringcache/ringcache/examples/pages/myring"`}},
	{`import (
		"testing"
		"github.com/ringcache/ringcache/fuzz/storetest"
	)

	type (
		Handle = storetest.Handle
		State = storetest.State
	)
`, [2]string{"{ ... }", "{ panic(c.Size) }"}},
	{`import (
		"testing"
		"github.com/ringcache/ringcache/fuzz/lrutest"
	)

	type mine struct{ lrutest.Cache }

	func New(int64) lrutest.Cache { return nil }
`, [2]string{}},
	{`import (
		"testing"
		"github.com/ringcache/ringcache/fuzz/lrutest"
	)
`, [2]string{"{ ... }", "{ panic(capacity) }"}},
	{`import (
		"testing"
		"github.com/ringcache/ringcache/fuzz/tiertest"
		"github.com/ringcache/ringcache/tier"
	)

	func newLevel(testing.TB, int64) tier.Level { return nil }
`, [2]string{}},
	{`import (
		"fmt"
		"github.com/ringcache/ringcache/fuzz/explore"
	)

	func check(int) error { return nil }

	func program() {`, [2]string{}},
	{`import (
		"fmt"
		"github.com/ringcache/ringcache/fuzz/linear"
	)

	func program(k string, v uint64) {`, [2]string{"{ ... linear.StoreResult{Value: v} ... })", "{ return linear.StoreResult{Value: v}, nil })\n\tfmt.Println(err)"}},
}

// myRing is the ring of the reader of the page.
const myRing = `package myring

import (
	"maps"

	"github.com/ringcache/ringcache/shmring"
)

type Ring struct {
	ring   *shmring.Ring
	memory []byte
}

func New(size int, firstID uint32) *Ring {
	memory := make([]byte, size)
	return &Ring{shmring.NewRing(memory, shmring.RingOptions{FirstID: firstID}), memory}
}

func (r *Ring) Allocate(size int) (address uint64, id uint32, err error) {
	address, id, _, err = r.ring.Alloc(size)
	return address, id, err
}

func (r *Ring) FreeWhile(free func(id uint32) bool) []uint32 {
	return r.ring.Free(func(id uint32, _ []byte) bool { return free(id) }, r.ring.Size())
}
func (r *Ring) Addresses() map[uint32]uint64 { return maps.Collect(r.ring.Live()) }
func (r *Ring) OldestID() uint32             { return r.ring.State().IDStart }
func (r *Ring) NextID() uint32               { return r.ring.State().IDEnd }
func (r *Ring) Memory() []byte               { return r.memory }
`

// TestRingPageBlocks: the first Go block of docs/test-your-own-ring.md is a test that runs, and the others compile.
func TestRingPageBlocks(t *testing.T) {
	dir := t.TempDir()
	overlay := map[string]string{} // files of packages that are there for the go command alone
	put := func(name, text string) {
		here := filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		require.NoError(t, os.WriteFile(here, []byte(text), 0o600))
		path, err := filepath.Abs(filepath.Join("pages", name))
		require.NoError(t, err)
		overlay[path] = here
	}
	put("myring/myring.go", myRing)
	n := 0
	for _, b := range page(t, "test-your-own-ring.md", nil) {
		if b.language != "go" {
			continue
		}
		require.Less(t, n, len(ringPage), "a block that this test does not know")
		part := ringPage[n]
		n++
		if part.instead[0] != "" {
			require.Contains(t, b.text, part.instead[0])
			b.text = strings.ReplaceAll(b.text, part.instead[0], part.instead[1])
		}
		if part.given != "" {
			b.text = fmt.Sprintf("package block%d\n\n%s\n%s", n, part.given, b.text)
		}
		if strings.HasSuffix(part.given, "{") {
			b.text += "}\n"
		}
		if n == 1 {
			put("block1/block_test.go", b.text)
		} else {
			put(fmt.Sprintf("block%d/block.go", n), b.text) // compiled, and not linked
		}
	}
	require.Equal(t, len(ringPage), n)
	list, err := json.Marshal(map[string]any{"Replace": overlay})
	require.NoError(t, err)
	file := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(file, list, 0o600))
	out, err := exec.CommandContext(t.Context(), "go", "build", "-overlay", file, "./pages/...").CombinedOutput()
	require.NoError(t, err, "%s", out)
	out, err = exec.CommandContext(t.Context(), "go", "test", "-overlay", file, "-vet=off", "-c", "-o", dir+"/", "./pages/block1").CombinedOutput()
	require.NoError(t, err, "%s", out)
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "block1.test"))
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "FUZZ_OPS=2000", "FUZZ_SEED=")
	out, err = cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, "PASS\n", string(out))
}
