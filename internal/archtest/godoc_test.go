package archtest

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// public reports whether a package is for users of the library, tests of others included.
func public(dir string) bool {
	top, _, _ := strings.Cut(dir, "/")
	switch top {
	case "cmd", "examples", "interop", "bench", "scripts":
		return false
	}
	return dir != "." && !strings.Contains("/"+dir+"/", "/internal/")
}

// TestEveryExportedNameHasAComment: packages, types, functions, constants, variables, and methods of exported types. A comment of a
// group is one of all its names.
func TestEveryExportedNameHasAComment(t *testing.T) {
	fset := token.NewFileSet()
	documented, seen := map[string]bool{}, 0
	for _, s := range sources(t) {
		if s.test || !public(s.dir) {
			continue
		}
		f, err := parser.ParseFile(fset, s.file, nil, parser.ParseComments)
		require.NoError(t, err)
		documented[s.dir] = documented[s.dir] || f.Doc.Text() != ""
		check := func(name *ast.Ident, comments ...*ast.CommentGroup) {
			if !name.IsExported() {
				return
			}
			seen++
			text := ""
			for _, c := range comments {
				text += c.Text()
			}
			assert.NotEmpty(t, text, "%s: %s has no comment", fset.Position(name.Pos()), name.Name)
		}
		for _, decl := range f.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil || ast.IsExported(receiver(d.Recv.List[0].Type)) {
					check(d.Name, d.Doc)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch x := spec.(type) {
					case *ast.TypeSpec:
						check(x.Name, d.Doc, x.Doc, x.Comment)
					case *ast.ValueSpec:
						for _, name := range x.Names {
							check(name, d.Doc, x.Doc, x.Comment)
						}
					}
				}
			}
		}
	}
	for dir, ok := range documented {
		assert.True(t, ok, "%s has no package page", dir)
	}
	require.Greater(t, seen, 1500, "the walk found the names")
	t.Logf("%d exported names in %d packages, each with a comment", seen, len(documented))
}

// receiver returns the name of a method's type.
func receiver(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.StarExpr:
		return receiver(x.X)
	case *ast.IndexExpr:
		return receiver(x.X)
	case *ast.IndexListExpr:
		return receiver(x.X)
	case *ast.Ident:
		return x.Name
	}
	return ""
}

// TestEveryPackageHasAnExample that go test runs, since it has an output.
func TestEveryPackageHasAnExample(t *testing.T) {
	fset := token.NewFileSet()
	examples, sum := map[string]int{}, 0
	for _, s := range sources(t) {
		if !public(s.dir) || upstreams(s.dir) {
			continue
		}
		examples[s.dir] += 0
		if !s.test {
			continue
		}
		f, err := parser.ParseFile(fset, s.file, nil, parser.ParseComments)
		require.NoError(t, err)
		for _, e := range doc.Examples(f) {
			if e.Output != "" || e.EmptyOutput {
				examples[s.dir]++
				sum++
			}
		}
	}
	for dir, n := range examples {
		assert.Positive(t, n, "%s has no example with an output", dir)
	}
	t.Logf("%d examples in %d packages", sum, len(examples))
}

// upstreams reports whether a package has vLLM's own steps, for differential tests and no one else.
func upstreams(dir string) bool { return path.Base(dir) == "upstream" }
