// Way prints the functions on the way of one operation, and how many errors they check.
//
//	cd bench && go run ./way PACKAGE BENCHMARK
//	cd bench && go run ./way ./objstore BenchmarkRequest/pool/repeat/4KiB
//
// The operation is one turn of a benchmark. Way runs the benchmark twice with
// coverage, the second time for one turn more, and prints what ran more often. Tests
// and stand-ins for engines are not counted.
package main

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/tools/cover"
)

const module = "github.com/ringcache/ringcache/"

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: way PACKAGE BENCHMARK, from the folder bench")
		os.Exit(2)
	}
	if err := run("..", os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "way:", err)
		os.Exit(1)
	}
}

func run(root, pkg, bench string) error {
	tmp, err := os.MkdirTemp("", "ringcache-way-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	fewer, err := profile(root, pkg, bench, filepath.Join(tmp, "fewer"), 8)
	if err != nil {
		return err
	}
	more, err := profile(root, pkg, bench, filepath.Join(tmp, "more"), 9)
	if err != nil {
		return err
	}
	var all []function
	for name, blocks := range more {
		if strings.Contains(name, "/enginetest/") || strings.Contains(name, "/internal/goldentest/") {
			continue
		}
		var ran []block
		for i, b := range blocks {
			if b.Count > fewer[name][i].Count {
				b.Count -= fewer[name][i].Count
				ran = append(ran, b)
			}
		}
		if len(ran) == 0 {
			continue
		}
		found, err := functions(root, strings.TrimPrefix(name, module), ran)
		if err != nil {
			return err
		}
		all = append(all, found...)
	}
	if len(all) == 0 {
		return errors.New("the benchmark ran nothing of the module: is its name right?")
	}
	slices.SortFunc(all, func(a, b function) int {
		return cmp.Or(strings.Compare(a.file, b.file), a.line-b.line)
	})
	calls, checks, files := 0, 0, map[string]bool{}
	for _, f := range all {
		fmt.Printf("%4d calls %4d checks  %s:%s\n", f.calls, f.checks, f.file, f.name)
		calls, checks = calls+f.calls, checks+f.checks
		files[f.file] = true
	}
	fmt.Printf("%s: %d functions in %d files, %d calls, %d errors checked\n", bench, len(all), len(files), calls,
		checks)
	return nil
}

type position struct{ line, column int }

type block = cover.ProfileBlock

// profile runs n turns of a benchmark, and returns how often each block of each file
// ran, in the order of the file.
func profile(root, pkg, bench, out string, n int) (map[string][]block, error) {
	var exact []string
	for _, part := range strings.Split(bench, "/") {
		exact = append(exact, "^"+regexp.QuoteMeta(part)+"$")
	}
	pattern := strings.Join(exact, "/")
	cmd := exec.Command("go", "test", "-run", "^$", "-bench", pattern, "-skip", pattern+"/.", "-benchtime",
		fmt.Sprint(n, "x"),
		"-covermode", "atomic", "-coverpkg", "./...", "-coverprofile", out, pkg)
	cmd.Dir = root
	if b, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", cmd, err, b)
	}
	profiles, err := cover.ParseProfiles(out)
	if err != nil {
		return nil, err
	}
	blocks := map[string][]block{}
	for _, p := range profiles {
		blocks[p.FileName] = p.Blocks
	}
	return blocks, nil
}

// function is a function that ran.
type function struct {
	file, name string
	line       int
	calls      int
	checks     int // conditions about errors
}

// functions returns the functions of a file that have one of the blocks.
func functions(root, file string, ran []block) ([]function, error) {
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, filepath.Join(root, file), nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	at := func(p token.Pos) position {
		q := fset.Position(p)
		return position{q.Line, q.Column}
	}
	var all []function
	for _, d := range parsed.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		first, last := at(f.Body.Lbrace), at(f.Body.Rbrace)
		within := slices.DeleteFunc(slices.Clone(ran), func(b block) bool {
			return before(start(b), first) || before(last, start(b))
		})
		if len(within) == 0 {
			continue
		}
		one := function{file: file, name: name(f), line: first.line, calls: within[0].Count}
		ast.Inspect(f.Body, func(n ast.Node) bool {
			if i, ok := n.(*ast.IfStmt); ok && aboutError(i.Cond) {
				p := at(i.If)
				for _, b := range within {
					if !before(p, start(b)) && before(p, position{b.EndLine, b.EndCol}) {
						one.checks += b.Count
					}
				}
			}
			return true
		})
		all = append(all, one)
	}
	return all, nil
}

func start(b block) position { return position{b.StartLine, b.StartCol} }

func before(a, b position) bool {
	return a.line < b.line || a.line == b.line && a.column < b.column
}

// aboutError reports whether a condition compares an error: err != nil, errors.Is.
func aboutError(cond ast.Expr) bool {
	found := false
	ast.Inspect(cond, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.Ident:
			found = found || x.Name == "errors" || strings.HasPrefix(x.Name, "err")
		case *ast.SelectorExpr:
			found = found || strings.HasPrefix(x.Sel.Name, "err")
		}
		return !found
	})
	return found
}

func name(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	t := f.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.Ident:
			return x.Name + "." + f.Name.Name
		default:
			return f.Name.Name
		}
	}
}
