package shmstore

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each field of an object is set in the files of its part alone, and no part takes the lock of the store.
func TestPartsKeepToTheirFields(t *testing.T) {
	lifetime := []string{"lifetime", "request", "reserv", "durability_adopt", "durability_resume"} // which restore states
	owners := map[string][]string{
		"search": {"space"}, "places": {"space"}, "class": {"space"}, "noParent": {"space"}, "busy": {"space"},
		"quarantined": lifetime, "leases": lifetime, "sent": lifetime, "state": lifetime, "pinned": lifetime,
		"word": {"durability"}, "entry": {"durability"},
	}
	constructors := map[string]string{"entry": "newObject", "word": "newObject"}
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		require.NoError(t, err)
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			set := func(e ast.Expr) {
				sel, ok := e.(*ast.SelectorExpr)
				if !ok {
					return
				}
				of, ok := sel.X.(*ast.Ident)
				name := sel.Sel.Name
				if !ok || !slices.Contains([]string{"o", "older", "x", "d"}, of.Name) || owners[name] == nil || constructors[name] == fn.Name.Name {
					return
				}
				seen[name] = true
				mine := slices.ContainsFunc(owners[name], func(part string) bool { return strings.HasPrefix(file, part) })
				require.True(t, mine, "%s sets Object.%s, which is of %v", file, name, owners[name])
			}
			ast.Inspect(fn, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.AssignStmt:
					for _, e := range n.Lhs {
						set(e)
					}
				case *ast.IncDecStmt:
					set(n.X)
				case *ast.SelectorExpr:
					part := slices.ContainsFunc([]string{"space", "lifetime"}, func(part string) bool { return strings.HasPrefix(file, part) })
					require.False(t, n.Sel.Name == "mu" && part, "%s takes the lock of the store", file)
				}
				return true
			})
		}
	}
	require.Subset(t, slices.Sorted(maps.Keys(seen)), []string{"busy", "class", "entry", "leases", "noParent", "pinned", "quarantined", "search", "sent", "state", "word"})
}
