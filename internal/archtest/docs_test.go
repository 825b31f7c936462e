package archtest

import (
	"bytes"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// documents returns the Markdown files of the repository by path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	root := os.DirFS(filepath.Join("..", ".."))
	out := map[string]string{}
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case path.Ext(name) == ".md":
			b, err := fs.ReadFile(root, name)
			out[name] = string(b)
			return err
		}
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, len(out), 8, "the walk found the documents")
	return out
}

// pages returns the documentation of every package of the repository by directory.
func pages(t *testing.T) map[string]*doc.Package {
	t.Helper()
	files := map[string][]*ast.File{}
	fset := token.NewFileSet()
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		f, err := parser.ParseFile(fset, s.file, nil, parser.ParseComments)
		require.NoError(t, err)
		files[s.dir] = append(files[s.dir], f)
	}
	out := map[string]*doc.Package{}
	for dir, ff := range files {
		p, err := doc.NewFromFiles(fset, ff, module+"/"+dir)
		require.NoError(t, err)
		out[dir] = p
	}
	return out
}

// exported returns the exported names of a package: functions, types, constants, variables.
func exported(p *doc.Package) map[string]bool {
	out := map[string]bool{}
	values := slices.Concat(p.Consts, p.Vars)
	funcs := slices.Clone(p.Funcs)
	for _, t := range p.Types {
		out[t.Name] = true
		values = slices.Concat(values, t.Consts, t.Vars)
		funcs = append(funcs, t.Funcs...)
	}
	for _, v := range values {
		for _, n := range v.Names {
			out[n] = true
		}
	}
	for _, f := range funcs {
		out[f.Name] = true
	}
	return out
}

// The package page is what a newcomer reads first, so it names the types and calls that the
// package is used by.
func TestPackagePagesNameWhatThePackageIsUsedBy(t *testing.T) {
	all := pages(t)
	for dir, names := range map[string][]string{
		"objstore":        {"Store", "Reader", "Pool", "FIFO", "Request", "Pool.Fence", "AdoptPool", "Reservation", "View"},
		"shmstore":        {"Store.Fence", "Request", "Request.Abort", "Reader", "Adopt", "PayloadOwner", "Store.Shutdown", "Store.Abandon", "Store.Pin", "Handle"},
		"shmring":         {"Ring", "Pool", "ReadChunk"},
		"shmring/segment": {"Segment", "Create", "Attach", "Adopt", "Sweep", "Segment.Hold", "Segment.Explain"},
		"shmring/sidecar": {"File", "Slot", "Record", "State"},
		"shmring/memory":  {"Options", "Prepare", "Report"},
		"mmcache":         {"Open", "OpenShared", "OpenMirrored", "Cache", "Config.Options", "Shared.Fence", "Request.Missed", "Cache.Shutdown", "Cache.Abandon"},
	} {
		for _, n := range names {
			require.Contains(t, all[dir].Doc, "["+n+"]", "the package page of %s", dir)
		}
	}
}

var goBlock = regexp.MustCompile("(?s)```go\n(.*?)```")

// Code in documents names only what exists.
func TestDocumentsNameWhatExists(t *testing.T) {
	names := map[string]map[string]bool{}
	for dir, p := range pages(t) {
		names[path.Base(dir)] = exported(p)
	}
	selector := regexp.MustCompile(`\b([a-z]+)\.([A-Z]\w*)`)
	seen := 0
	for file, text := range documents(t) {
		for _, block := range goBlock.FindAllStringSubmatch(text, -1) {
			for _, m := range selector.FindAllStringSubmatch(block[1], -1) {
				if p := names[m[1]]; p != nil {
					require.True(t, p[m[2]], "%s: there is no %s.%s", file, m[1], m[2])
					seen++
				}
			}
		}
	}
	require.Greater(t, seen, 20, "the documents have code")
}

var link = regexp.MustCompile(`\]\(([^)#]+)(#[^)]*)?\)`)

// A link between documents leads somewhere.
func TestLinksOfDocumentsResolve(t *testing.T) {
	for file, text := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			_, err := os.Stat(filepath.Join("..", "..", path.Dir(file), m[1]))
			require.NoError(t, err, "%s links to %s", file, m[1])
		}
	}
}

// Who reads from Python, or uses the store without vLLM, finds the way in the README.
func TestReadmeLeadsPythonUsersAndUsersWithoutVLLM(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	require.NoError(t, err)
	for _, want := range []string{
		"pip install ./python", "docs/without-vllm.md", "cache.Shutdown(", "cache.Abandon()", "cache.Fence()",
	} {
		require.True(t, bytes.Contains(readme, []byte(want)), "README.md lacks %q", want)
	}
}
