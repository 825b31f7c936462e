package archtest

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
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
		"objstore":         {"Pool", "FIFO", "Reader", "Request", "Pool.Fence", "AdoptPool", "Reservation", "View"},
		"shmstore":         {"Store.Fence", "Request", "Request.Abort", "Reader", "Adopt", "PayloadOwner", "Store.Shutdown", "Store.Abandon", "Store.Pin", "Handle"},
		"shmring":          {"Ring", "Pool", "ReadChunk"},
		"shmring/segment":  {"Segment", "Create", "Attach", "Adopt", "Sweep", "Segment.Hold", "Segment.Explain", "Segment.Pin"},
		"pin":              {"Registrar", "Registration", "Nop"},
		"internal/sidecar": {"File", "Slot", "Record", "State"},
		"shmring/memory":   {"Options", "Prepare", "Report"},
		"tier":             {"Store", "MemoryLevel", "Lower", "Lease", "Store.Get", "Store.Prefetch", "Store.Drain", "Store.Close"},
		"tier/memory":      {"Open", "Look"},
		"tier/disk":        {"Open", "Layout", "Native", "Level.Get"},
		"tier/redis":       {"Open", "Layout", "Objects", "LMCache", "RESP"},
		"encoder":          {"Manager", "Tree", "CheckIdentifier", "Fingerprint", "Identifier"},
		"daemon":           {"Server", "Config", "Run"},
		"daemon/wire":      {"Hello", "Pin", "Reserve", "Release"},
		"daemon/client":    {"Dial", "Client", "Client.Map"},
		"mmcache":          {"Open", "OpenShared", "OpenMirrored", "Cache", "Config.Options", "Shared.Fence", "Request.Missed", "Cache.Shutdown", "Cache.Abandon"},
	} {
		for _, n := range names {
			require.Contains(t, all[dir].Doc, "["+n+"]", "the package page of %s", dir)
		}
	}
}

// The root package is documentation: it imports and exports nothing, and names packages that exist.
func TestRootPackageIsDocumentation(t *testing.T) {
	for _, s := range sources(t) {
		if s.dir == "." && !s.test {
			require.Equal(t, "doc.go", filepath.Base(s.file))
			require.Empty(t, s.imports)
		}
	}
	all := pages(t)
	root := all["."]
	require.NotNil(t, root)
	require.Empty(t, exported(root))
	_, listed, ok := strings.Cut(root.Doc, "# Floors")
	require.True(t, ok)
	lines := regexp.MustCompile(`(?m)^\t([a-z/]+)  `).FindAllStringSubmatch(listed, -1)
	require.Greater(t, len(lines), 5, "the front page lists the floors")
	for _, m := range lines {
		require.Contains(t, all, m[1], "the front page names a package that exists")
	}
}

var (
	goBlock    = regexp.MustCompile("(?s)```go\n(.*?)```")
	inlineCode = regexp.MustCompile("`([^`\n]+)`")
)

// Code in documents names only what exists, in blocks and within sentences. Records of decisions
// and the table of old names also name what went.
func TestDocumentsNameWhatExists(t *testing.T) {
	names := map[string]map[string]bool{}
	for dir, p := range pages(t) {
		base := path.Base(dir) // which two packages may have
		if names[base] == nil {
			names[base] = map[string]bool{}
		}
		maps.Copy(names[base], exported(p))
	}
	selector := regexp.MustCompile(`\b([a-z]+)\.([A-Z]\w*)`)
	seen := 0
	for file, text := range documents(t) {
		code := goBlock.FindAllStringSubmatch(text, -1)
		if !strings.HasPrefix(file, "docs/decisions") && file != "docs/names.md" {
			code = append(code, inlineCode.FindAllStringSubmatch(text, -1)...)
		}
		for _, block := range code {
			for _, m := range selector.FindAllStringSubmatch(block[1], -1) {
				if p := names[m[1]]; p != nil {
					assert.True(t, p[m[2]], "%s: there is no %s.%s", file, m[1], m[2])
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

// Every hazard of docs/hazards.md is shown by tests of both columns, and every such test belongs to a hazard.
func TestHazardsAreShownByTests(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "hazards.md"))
	require.NoError(t, err)
	suite, err := os.ReadFile(filepath.Join("..", "..", "interop", "test_hazards.py"))
	require.NoError(t, err)
	shown := map[string]map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^def test_([a-z_]+?)_(upstream|pool)[_(]`).FindAllStringSubmatch(string(suite), -1) {
		if shown[m[1]] == nil {
			shown[m[1]] = map[string]bool{}
		}
		shown[m[1]][m[2]] = true
	}
	named := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(string(page), -1)
	require.Greater(t, len(named), 20, "the page lists the hazards")
	for _, m := range named {
		require.Equal(t, map[string]bool{"upstream": true, "pool": true}, shown[m[1]], "tests of the hazard %s", m[1])
		delete(shown, m[1])
	}
	require.Empty(t, shown, "tests of hazards that the page lacks")
}

// A record of a decision has a number, a status and four parts, and the index lists it with both.
func TestDecisionsAreRecordsWithAnIndex(t *testing.T) {
	dir := filepath.Join("..", "..", "docs")
	index, err := os.ReadFile(filepath.Join(dir, "decisions.md"))
	require.NoError(t, err)
	files, err := os.ReadDir(filepath.Join(dir, "decisions"))
	require.NoError(t, err)
	require.Greater(t, len(files), 80, "the records are there")
	form := regexp.MustCompile(`(?s)^# (\d+)\. ([^\n]+)\n\nStatus: ([^\n]+)\n\n` +
		`## Context\n\n.+\n\n## Decision\n\n.+\n\n## Alternatives\n\n.+\n\n## Consequences\n\n.+\n$`)
	status := regexp.MustCompile(`^(accepted|(superseded|accepted, amended) by \[(\d+)\]\((\d{4})-[^)]+\))$`)
	for i, f := range files {
		t.Run(f.Name(), func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(dir, "decisions", f.Name()))
			require.NoError(t, err)
			m := form.FindSubmatch(text)
			require.NotNil(t, m, "title, status, context, decision, alternatives, consequences")
			require.Equal(t, strconv.Itoa(i+1), string(m[1]), "numbers have no gaps")
			require.Equal(t, fmt.Sprintf("%04d", i+1), f.Name()[:4])
			s := status.FindSubmatch(m[3])
			require.NotNil(t, s, "accepted, or superseded or amended by a record: %s", m[3])
			if by := string(s[3]); by != "" {
				n, err := strconv.Atoi(by)
				require.NoError(t, err)
				require.Equal(t, fmt.Sprintf("%04d", n), string(s[4]), "text and link name the same record")
			}
			shown := strings.ReplaceAll(string(m[3]), "](", "](decisions/") // the index lies one folder higher
			row := fmt.Sprintf("| %s | [%s](decisions/%s) | %s |\n", m[1], m[2], f.Name(), shown)
			require.Equal(t, 1, bytes.Count(index, []byte(row)), "docs/decisions.md contains the row\n%s", row)
		})
	}
}
