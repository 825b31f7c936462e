package archtest

import (
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
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// documents returns the Markdown files of the repository by path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	out := files(t, ".md")
	require.Greater(t, len(out), 8, "the walk found the documents")
	return out
}

// files returns the files of the repository with these extensions by path.
func files(t *testing.T, extensions ...string) map[string]string {
	t.Helper()
	root := os.DirFS(filepath.Join("..", ".."))
	out := map[string]string{}
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case slices.Contains(extensions, path.Ext(name)):
			b, err := fs.ReadFile(root, name)
			out[name] = string(b)
			return err
		}
		return nil
	})
	require.NoError(t, err)
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
		"objstore": {"Pool", "FIFO", "Reader", "Request", "Pool.Fence", "AdoptPool", "Reservation", "View"},
		"shmstore": {
			"Store.Fence", "Request", "Request.Abort", "Reader", "Adopt", "PayloadOwner",
			"Store.Shutdown", "Store.Abandon", "Store.Pin", "Handle",
		},
		"shmring": {"Ring", "Pool", "ReadChunk"},
		"shmring/segment": {
			"Segment", "Create", "Attach", "Adopt", "Sweep",
			"Segment.Hold", "Segment.Explain", "Segment.Pin",
		},
		"pin":              {"Registrar", "Registration", "Nop"},
		"internal/sidecar": {"File", "Slot", "Record", "State"},
		"shmring/memory":   {"Options", "Prepare", "Report"},
		"tier": {
			"Store", "MemoryLevel", "Lower", "Lease", "Store.Get", "Store.Prefetch",
			"Store.Drain", "Store.Close",
		},
		"tier/memory":    {"Open", "Look"},
		"tier/disk":      {"Open", "Layout", "Native", "Level.Get"},
		"tier/s3":        {"Open", "Options"},
		"tier/folder":    {"Open", "Options", "Level.Get"},
		"tier/redis":     {"Open", "Layout", "Objects", "LMCache", "RESP"},
		"encoder":        {"Manager", "Tree", "CheckIdentifier", "Fingerprint", "Identifier"},
		"lmcache/config": {"Sources.Load", "LoadServer", "Config.Translate", "Translation.YAML", "Problem"},
		"kv": {
			"Scheme", "Chain.Set", "TokenDatabase", "Layout.Space", "ObjectKey", "EngineKey",
			"LongestPrefix",
		},
		"kv/flow": {
			"Scheduler", "Scheduler.Matched", "Tracker", "Meta", "Meta.ToLoad",
			"LoadSpec", "SaveSpec", "AppendSlots",
		},
		"lmcache/lookup": {"Server", "Client", "Address", "Server.Stored"},
		"daemon":         {"Server", "Config", "Run"},
		"daemon/wire":    {"Hello", "Pin", "Reserve", "Release"},
		"daemon/client":  {"Dial", "Client", "Client.Map"},
		"mmcache": {
			"Open", "OpenShared", "OpenMirrored", "Cache", "Config.Options", "Shared.Fence", "Request.Missed",
			"Cache.Shutdown", "Cache.Abandon",
		},
		"kv/directory": {
			"Directory.Register", "Directory.Apply", "Directory.StartSync",
			"Directory.Find", "Directory.Expire",
		},
		"lmcache/controller": {"Server.ServePull", "Server.ServeReply", "Server.ServeHeartbeat", "Server.Close"},
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

// Code in documents names only what exists, in blocks and within sentences.
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
		code = append(code, inlineCode.FindAllStringSubmatch(text, -1)...)
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

var (
	link    = regexp.MustCompile(`\]\(([^)#]*)(?:#([^)]*))?\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notSlug = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors returns the names by which the headings of a document are linked to.
func anchors(text string) map[string]bool {
	out := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		out[strings.ReplaceAll(notSlug.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
	}
	return out
}

// A link between documents leads somewhere, to a heading too.
func TestLinksOfDocumentsResolve(t *testing.T) {
	all := documents(t)
	for file, text := range all {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") || m[1]+m[2] == "" {
				continue
			}
			to := file
			if m[1] != "" {
				to = path.Join(path.Dir(file), m[1])
				_, err := os.Stat(filepath.Join("..", "..", to))
				require.NoError(t, err, "%s links to %s", file, m[1])
			}
			if m[2] != "" && path.Ext(to) == ".md" {
				assert.True(t, anchors(all[to])[m[2]], "%s links to %s#%s, and there is no such heading", file, m[1], m[2])
			}
		}
	}
}

// Whoever has engines, reads from Python, or uses the store without vLLM, finds the way in the README, which is short.
func TestReadmeLeadsEverybody(t *testing.T) {
	readme := documents(t)["README.md"]
	require.LessOrEqual(t, strings.Count(readme, "\n"), 140, "move details to the page that they belong to")
	for _, want := range []string{
		"make demo", "make test", "ringcache serve", "bench/results/table.md", "unreleased", "make wheel && pip install", "docs/install.md",
		"docs/index.md", "docs/how-it-works.md", "docs/encoder.md", "docs/embedding.md", "docs/without-vllm.md", "cache.Shutdown(", "cache.Abandon()",
	} {
		require.Contains(t, readme, want)
	}
}

// docs/index.md, from which the site's side bar is made, lists each page, in a section for those who read it.
func TestIndexListsEveryPage(t *testing.T) {
	all := documents(t)
	before, sections, ok := strings.Cut(all["docs/index.md"], "\n## ")
	require.True(t, ok)
	require.Contains(t, before, "(../README.md)")
	pages := 0
	for file := range all {
		if page, ok := strings.CutPrefix(file, "docs/"); ok && page != "index.md" {
			require.Contains(t, sections, "]("+page+"): ", "docs/index.md lists the page, and says what it is about")
			pages++
		}
	}
	require.Greater(t, pages, 20)
}

// CONTRIBUTING.md names files and folders by their whole path, and they exist.
func TestContributingNamesWhatExists(t *testing.T) {
	named := regexp.MustCompile("`([a-z_]+(?:/[a-z0-9_]+)+(?:\\.(?:go|py|txt|in))?)`").FindAllStringSubmatch(documents(t)["CONTRIBUTING.md"], -1)
	require.Greater(t, len(named), 60, "the page names files")
	for _, m := range named {
		if strings.HasPrefix(m[1], "bin/") { // make makes it
			continue
		}
		_, err := os.Stat(filepath.Join("..", "..", m[1]))
		assert.NoError(t, err, "CONTRIBUTING.md names %s", m[1])
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
	named := regexp.MustCompile("(?m)^- `([a-z_]+)`: ").FindAllStringSubmatch(string(page), -1)
	require.Greater(t, len(named), 20, "the page lists the hazards")
	for _, m := range named {
		require.Equal(t, map[string]bool{"upstream": true, "pool": true}, shown[m[1]], "tests of the hazard %s", m[1])
		delete(shown, m[1])
	}
	require.Empty(t, shown, "tests of hazards that the page lacks")
}

// Each record of docs/decisions.md says what was not chosen, and is cited where the choice shows in the code. All
// citations have one form, on one line, and name a record.
func TestDecisionsAreCited(t *testing.T) {
	page := documents(t)["docs/decisions.md"]
	cited := map[string]int{}
	for _, record := range strings.Split(page, "\n### ")[1:] {
		title, text, _ := strings.Cut(record, "\n")
		require.NotContains(t, cited, title, "titles are unique")
		require.Contains(t, text, "\n**Not chosen.** ", title)
		cited[title] = 0
	}
	require.Greater(t, len(cited), 40, "the records are there")
	citation := regexp.MustCompile(`(?://|#) See docs/decisions\.md, "([^"]+)"\.(?:\n|$)`)
	code := []string{".go", ".py", ".c", ".h", ".sh", ".yaml", ".yml", ".toml"}
	for file, text := range files(t, code...) {
		if file == "internal/archtest/docs_test.go" {
			continue
		}
		found := citation.FindAllStringSubmatch(text, -1)
		require.Equal(t, strings.Count(text, "docs/decisions.md"), len(found),
			`%s: a citation is a line of a comment: See docs/decisions.md, "TITLE".`, file)
		for _, m := range found {
			require.Contains(t, cited, m[1], "%s cites a record that is not there", file)
			cited[m[1]]++
		}
	}
	for title, n := range cited {
		require.Positive(t, n, "no code cites the record %q: cite it where the choice shows, or remove it", title)
	}
}

// Lines of documents are short enough to be read side by side, and to show a change in a diff.
func TestDocumentsAreNarrow(t *testing.T) {
	const most = 160
	for file, text := range documents(t) {
		if generated := strings.HasPrefix(file, "bench/results/"); generated {
			continue // tables as wide as the number of peers and rules; the benchmarks write them
		}
		for i, line := range strings.Split(text, "\n") {
			require.LessOrEqual(t, utf8.RuneCountInString(line), most, "%s:%d: wrap it, or make a list of a wide table", file, i+1)
		}
	}
}
