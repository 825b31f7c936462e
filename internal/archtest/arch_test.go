// Package archtest holds the rules of the house that no compiler knows.
package archtest

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/ringcache/ringcache"

// floors are the packages from the bottom up: a package imports only packages
// of floors below its own. internal/... is below all of them, but for the
// packages that serve a command or a test.
var floors = [][]string{
	{"pycompat"},
	{"shmring", "shmring/memory", "mmhash"},
	{"shmring/sidecar"},
	{"shmring/segment"},
	{"serde", "shmstore"},
	{"objstore/internal/door"},
	{"objstore"},
	{"objstore/upstream"},
	{"lrusync"},
	{"lrusync/upstream"},
	{"mmcache"},
	{"engine"},
	{"engine/zmq"},
	{"engine/enginetest", "examples/preprocess"},
	{"agent"},
	{"cmd/ringcache", "examples/demo", "examples/customserver", "examples/frontend", "interop/lockstep", "e2e"},
}

// core may link these modules and no others.
var (
	core    = []string{"pycompat", "shmring", "shmring/memory", "shmring/sidecar", "shmring/segment", "mmhash", "serde", "shmstore", "objstore", "lrusync", "mmcache", "engine"}
	allowed = []string{
		"golang.org/x/sys", "golang.org/x/sync", "github.com/vmihailenco/msgpack/v5", "github.com/zeebo/blake3",
	}
)

// source is one Go file with what it imports.
type source struct {
	dir, file string
	test      bool
	imports   []string
}

func sources(t *testing.T) []source {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	var out []source
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if _, err := os.Stat(filepath.Join(path, "go.mod")); path != root && (err == nil || strings.HasPrefix(d.Name(), ".")) {
				return filepath.SkipDir // another module
			}
			return nil
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		s := source{dir: filepath.ToSlash(dir), file: path, test: strings.HasSuffix(path, "_test.go")}
		for _, i := range f.Imports {
			p, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return err
			}
			s.imports = append(s.imports, p)
		}
		out = append(out, s)
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, len(out), 50, "the walk found the sources")
	return out
}

func floorOf(dir string) int {
	return slices.IndexFunc(floors, func(f []string) bool { return slices.Contains(f, dir) })
}

func TestImportsPointDownwards(t *testing.T) {
	for _, s := range sources(t) {
		own := floorOf(s.dir)
		if own < 0 {
			require.True(t, strings.HasPrefix(s.dir, "internal/"), "%s: give the package a floor in this test", s.dir)
		}
		for _, p := range s.imports {
			dir, ours := strings.CutPrefix(p, module+"/")
			if !ours || s.test {
				continue
			}
			switch to := floorOf(dir); {
			case own < 0 && to >= 0:
				// goldentest serves tests of every floor, and so needs the table.
				require.True(t, s.dir == "internal/goldentest" && dir == "pycompat", "%s imports %s: internal packages are below", s.file, dir)
			case to >= 0:
				require.Less(t, to, own, "%s imports %s, which is not below it", s.file, dir)
			default:
				require.True(t, strings.HasPrefix(dir, "internal/"), "%s imports %s", s.file, dir)
			}
		}
	}
}

func TestUnsafeOnlyInInternal(t *testing.T) {
	for _, s := range sources(t) {
		if slices.Contains(s.imports, "unsafe") {
			require.Contains(t, []string{"internal/mem", "internal/futex"}, s.dir, s.file)
		}
		require.NotContains(t, s.imports, "C", s.file)
	}
}

// TestStoreOfBytesHasNothingOfVLLM: what payloads are is a matter of their owner.
func TestStoreOfBytesHasNothingOfVLLM(t *testing.T) {
	found := false
	for _, s := range sources(t) {
		if s.dir != "shmstore" {
			continue
		}
		found = true
		require.NotContains(t, s.imports, module+"/pycompat", s.file)
		require.NotContains(t, s.imports, module+"/serde", s.file)
	}
	require.True(t, found)
}

// TestCoreLinksFewModules follows the imports of the core through our own
// packages to the modules outside.
func TestCoreLinksFewModules(t *testing.T) {
	imports := map[string][]string{}
	for _, s := range sources(t) {
		if !s.test {
			imports[s.dir] = append(imports[s.dir], s.imports...)
		}
	}
	seen := map[string]bool{}
	used := map[string]bool{}
	var visit func(dir string)
	visit = func(dir string) {
		if seen[dir] {
			return
		}
		seen[dir] = true
		for _, p := range imports[dir] {
			if d, ours := strings.CutPrefix(p, module+"/"); ours {
				visit(d)
				continue
			}
			if !strings.Contains(strings.SplitN(p, "/", 2)[0], ".") {
				continue // standard library
			}
			i := slices.IndexFunc(allowed, func(m string) bool { return p == m || strings.HasPrefix(p, m+"/") })
			require.GreaterOrEqual(t, i, 0, "%s imports %s", dir, p)
			used[allowed[i]] = true
		}
	}
	for _, dir := range core {
		visit(dir)
	}
	require.True(t, used["golang.org/x/sys"] && used["github.com/vmihailenco/msgpack/v5"], "the walk reached the leaves")
}

// TestNoTestHelperInProducts: goldentest imports testing.
func TestNoTestHelperInProducts(t *testing.T) {
	for _, s := range sources(t) {
		if !s.test && s.dir != "internal/goldentest" {
			require.NotContains(t, s.imports, module+"/internal/goldentest", s.file)
			require.NotContains(t, s.imports, "testing", s.file)
		}
	}
}
