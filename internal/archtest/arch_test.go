// Package archtest holds the rules of the house that no compiler checks.
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
// of floors below its own. internal/... is below all of them, unless it is listed,
// and x/internal/... is right below x, unless it is listed. What stands above engine is for the agent and for tests:
// no part of the library depends on upstream's step-by-step calls.
var floors = [][]string{
	{"."}, // documentation, and nothing else
	{"pycompat"},
	{"shmring", "shmring/memory", "mmhash", "pin"},
	{"shmring/segment", "pin/cuda"},
	{"internal/payload"}, // for shmstore, and for those who check its segments
	{"serde", "shmstore"},
	{"internal/pyvalue"}, // for both halves of the messages, which are far apart
	{"serde/enginecore"},
	{"objstore", "objstore/check"},
	{"lrusync"},
	{"internal/lossypair"}, // for tests of lrusync with two processes, and for internal/soak
	{"tier"},
	{"tier/internal/remote", "tier/internal/tree"}, // for levels that can go away, and for those in folders
	{"tier/memory", "tier/disk", "tier/redis", "tier/s3", "encoder/safetensors"},
	{"tier/folder"}, // the layouts of its files are those of tier/disk
	{"inspect"},
	{"tier/internal/volume"}, // a program
	{"encoder"},
	{"internal/values"}, // for the protocols of values, with and without the daemon
	{"encoder/warm", "internal/location"},
	{"kv"},
	{"lmcache/config"},
	{"kv/flow", "kv/paged"},
	{"internal/flowreplay"}, // for tests of kv/flow, and for interop/kv
	{"lmcache/engine", "lmcache/lookup"},
	{"kv/directory"},
	{"kv/directory/shared"},
	{"lmcache/controller", "lmcache/coordinator", "lmcache/kvevents"},
	{"lmcache/lm", "lmcache/resp"},
	{"blend/rope"},
	{"blend"},
	{"blend/transformer", "blend/chunks"},
	{"internal/retrieval"}, // for tests, and for bench/blend
	{"mmcache"},
	{"engine"},
	{"engine/zmq"},
	{"daemon/internal/process", "daemon/internal/fair", "daemon/internal/tracing"}, // with the registry: for each protocol of the daemon
	{"daemon/internal/registry"},
	{"daemon/internal/sessionless"}, // for each protocol of values
	{"daemon/wire"},
	{"daemon/client"},
	{"daemon"},
	{"daemon/doctor"},
	{"objstore/upstream", "lrusync/upstream"},
	{"engine/enginetest/wire"},
	{"engine/enginetest", "preprocess"},
	{"agent"},
	{"fuzz"}, // what is below tests any ring and store; fuzz/system tests ours, too
	{"fuzz/model"},
	{"fuzz/generate", "fuzz/internal/harness/rules"},
	{"fuzz/internal/harness", "fuzz/ringrules"},
	{"fuzz/internal/harness/harnesstest"},
	{"fuzz/ringtest", "fuzz/storetest", "fuzz/lrutest", "fuzz/tiertest", "fuzz/explore", "fuzz/linear", "fuzz/fault", "fuzz/corpus"},
	{"fuzz/system"},
	{"internal/soak"}, // a program
	{
		"cmd/ringcache",
		"examples", "examples/demo", "examples/customserver", "examples/embedding", "examples/frontend",
		"examples/tiers",
		"interop/lockstep", "interop/encoder", "interop/kv", "interop/lm", "interop/lmcacheengine", "interop/lookup",
		"interop/e2e",
		"scripts/wiregen",
	},
}

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

func belowAll(dir string) bool {
	return strings.HasPrefix(dir, "internal/") && listedAt(dir) < 0
}

// listedAt returns the place of a package in floors, or -1.
func listedAt(dir string) int {
	return slices.IndexFunc(floors, func(f []string) bool { return slices.Contains(f, dir) })
}

// floorOf returns the height of a package, or -1 for internal packages below
// all floors. A package x/internal/... that is not listed is half a floor below x.
func floorOf(t *testing.T, dir string) int {
	t.Helper()
	if belowAll(dir) {
		return -1
	}
	if i := listedAt(dir); i >= 0 {
		return 2 * i
	}
	parent, _, nested := strings.Cut(dir, "/internal/")
	i := listedAt(parent)
	require.True(t, nested && i >= 0, "%s: give the package a floor in this test", dir)
	return 2*i - 1
}

func TestImportsPointDownwards(t *testing.T) {
	for _, s := range sources(t) {
		own := floorOf(t, s.dir)
		for _, p := range s.imports {
			dir, ours := strings.CutPrefix(p, module+"/")
			if !ours || s.test || belowAll(dir) {
				continue
			}
			if s.dir == "internal/goldentest" && dir == "pycompat" {
				continue // it serves tests of every floor, and so needs the table
			}
			to := floorOf(t, dir)
			siblings := to == own && to%2 != 0 // two packages below one x/internal
			require.True(t, to < own || siblings, "%s imports %s, which is not below it", s.file, dir)
		}
	}
}

// TestUnsafeAndCgoStayInTheirRooms: pin/cuda loads a library at run time, for which Go has nothing.
func TestUnsafeAndCgoStayInTheirRooms(t *testing.T) {
	for _, s := range sources(t) {
		if s.dir == "pin/cuda" || strings.HasPrefix(s.dir, "pin/cuda/internal/") {
			continue
		}
		if slices.Contains(s.imports, "unsafe") {
			require.Contains(t, []string{"internal/mem", "internal/futex", "daemon/internal/lmcache/mp"}, s.dir, s.file)
		}
		require.NotContains(t, s.imports, "C", s.file)
	}
}

// TestCoreIsWithoutCgo: nothing imports pin/cuda but what is for devices, so no program gets cgo that
// did not ask for it.
func TestCoreIsWithoutCgo(t *testing.T) {
	for _, s := range sources(t) {
		if !strings.HasPrefix(s.dir, "pin/cuda") && !s.test {
			require.NotContains(t, s.imports, module+"/pin/cuda", s.file)
		}
	}
}

// TestNoTestHelperInProducts: packages for tests import testing. Those of fuzz are products, for
// other people's tests.
func TestNoTestHelperInProducts(t *testing.T) {
	helpers := []string{
		"internal/alloctest", "internal/goldentest", "internal/pintest", "pin/cuda/internal/fakedriver", "objstore/internal/objtest",
		"fuzz/internal/harness", "fuzz/internal/harness/harnesstest", "fuzz/ringtest", "fuzz/storetest", "fuzz/lrutest", "fuzz/tiertest", "fuzz/fault",
		"internal/redistest", "internal/hosttest", "internal/s3test",
	}
	for _, s := range sources(t) {
		if s.test || slices.Contains(helpers, s.dir) {
			continue
		}
		require.NotContains(t, s.imports, "testing", s.file)
		for _, h := range helpers {
			require.NotContains(t, s.imports, module+"/"+h, s.file)
		}
	}
}

// TestModelsShareNoCode: a model that used the code which it judges would repeat its mistakes.
func TestModelsShareNoCode(t *testing.T) {
	for _, s := range sources(t) {
		if s.dir != "fuzz" && s.dir != "fuzz/model" && s.dir != "fuzz/generate" {
			continue
		}
		for _, p := range s.imports {
			if dir, ours := strings.CutPrefix(p, module+"/"); ours {
				require.True(t, dir == "fuzz" || strings.HasPrefix(dir, "fuzz/"), "%s imports %s", s.file, dir)
			}
		}
	}
}
