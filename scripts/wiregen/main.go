// Command wiregen writes the codec of the daemon's protocol, wire_gen.go, and the table of all fields in
// docs/daemon.md, from the table of fields: the tags of the structs in wire.go. Run it by `go generate
// ./daemon/wire`.
//
// Each field that is sent has a tag msg with its key and, after commas, what its Go type does not say:
//
//	needed      it is always written, and a map without it is refused
//	most=N      the longest list
//	least=-1    the least integer, instead of 0
//	people      a text for people: what is no UTF-8 is replaced, instead of refused
//	open        a word that later versions have more of: an unknown one is no error of the message
//	since=NAME  it belongs to the feature NAME: the page says so, and its use asks whether both sides have that
//
// A field of a request has the tags needs and may, too: the operations that need it, and those that may
// have it.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// In the folder of package wire.
const (
	source = "wire.go"
	target = "wire_gen.go"
)

var page = filepath.Join("..", "..", "docs", "daemon.md")

func main() {
	files, err := generate()
	for name, text := range files {
		if err == nil {
			err = os.WriteFile(name, text, 0o644)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "wiregen:", err)
		os.Exit(1)
	}
}

// generate returns the files as they should be.
func generate() (map[string][]byte, error) {
	text, err := os.ReadFile(source)
	if err != nil {
		return nil, err
	}
	t, err := read(text)
	if err != nil {
		return nil, err
	}
	code, err := t.code()
	if err != nil {
		return nil, err
	}
	if text, err = os.ReadFile(page); err != nil {
		return nil, err
	}
	text, err = t.fill(text)
	return map[string][]byte{target: code, page: text}, err
}

// table is what wire.go says.
type table struct {
	maps   []message
	words  map[string][]string // the constants of each type of words
	limits map[string]string   // the constants that are numbers
}

// message is a struct whose fields have tags: a map of the protocol.
type message struct {
	name   string
	fields []field
}

// top reports whether a message is not inside of another one. It is read over an earlier one, whose lists
// are used again.
func (m message) top() bool { return m.fields[0].key == "id" }

type field struct {
	name, typ, key string
	needed, people bool
	open           bool
	most, least    string
	since          string
	needs, may     []string // operations
}

func read(text []byte) (*table, error) {
	file, err := parser.ParseFile(token.NewFileSet(), source, text, 0)
	if err != nil {
		return nil, err
	}
	t := &table{words: map[string][]string{}, limits: map[string]string{}}
	for _, d := range file.Decls {
		decl, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, s := range decl.Specs {
			switch s := s.(type) {
			case *ast.ValueSpec:
				if typ, ok := s.Type.(*ast.Ident); ok && decl.Tok == token.CONST {
					t.words[typ.Name] = append(t.words[typ.Name], s.Names[0].Name)
				}
				if len(s.Values) == 1 {
					if n, ok := s.Values[0].(*ast.BasicLit); ok && n.Kind == token.INT {
						t.limits[s.Names[0].Name] = n.Value
					}
				}
			case *ast.TypeSpec:
				if body, ok := s.Type.(*ast.StructType); ok {
					m, err := readMap(s.Name.Name, body)
					if err != nil {
						return nil, err
					}
					if len(m.fields) > 0 {
						t.maps = append(t.maps, m)
					}
				}
			}
		}
	}
	return t, t.check()
}

func readMap(name string, body *ast.StructType) (m message, err error) {
	m.name = name
	for _, f := range body.Fields.List {
		if f.Tag == nil {
			continue
		}
		raw, err := strconv.Unquote(f.Tag.Value)
		if err != nil {
			return m, err
		}
		tag := reflect.StructTag(raw)
		for _, n := range f.Names {
			x := field{name: n.Name, typ: typeOf(f.Type)}
			x.needs, x.may = strings.Fields(tag.Get("needs")), strings.Fields(tag.Get("may"))
			for i, o := range strings.Split(tag.Get("msg"), ",") {
				what, value, _ := strings.Cut(o, "=")
				switch {
				case i == 0:
					x.key = o
				case what == "needed":
					x.needed = true
				case what == "people":
					x.people = true
				case what == "open":
					x.open = true
				case what == "most":
					x.most = value
				case what == "least":
					x.least = value
				case what == "since":
					x.since = value
				default:
					return m, fmt.Errorf("%s.%s: what is %q in its tag?", name, n.Name, o)
				}
			}
			m.fields = append(m.fields, x)
		}
	}
	return m, nil
}

func typeOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.StarExpr:
		return "*" + typeOf(e.X)
	case *ast.ArrayType:
		return "[]" + typeOf(e.Elt)
	case *ast.SelectorExpr:
		return typeOf(e.X) + "." + e.Sel.Name
	}
	return fmt.Sprintf("%T", e)
}

// check refuses a table that the code below, or a reader of the page, would misunderstand.
func (t *table) check() error {
	for _, m := range t.maps {
		keys := map[string]bool{}
		for _, f := range m.fields {
			at := m.name + "." + f.name
			switch _, err := t.value(f); {
			case err != nil:
				return fmt.Errorf("%s: %w", at, err)
			case f.key == "" || len(f.key) > 31 || keys[f.key]:
				return fmt.Errorf("%s: a key has 1 to 31 bytes, and is there once", at)
			case f.most != "" && t.limits[f.most] == "":
				return fmt.Errorf("%s: %s is no constant number", at, f.most)
			case f.least != "" && (f.least != "-1" || f.typ != "int64"):
				return fmt.Errorf("%s: only an int64 has a least value, and that is -1", at)
			}
			for _, op := range slices.Concat(f.needs, f.may) {
				switch {
				case m.name != "Request":
					return fmt.Errorf("%s: only a request has operations", at)
				case !slices.Contains(t.words["Op"], op):
					return fmt.Errorf("%s: there is no operation %s", at, op)
				}
			}
			keys[f.key] = true
		}
	}
	return nil
}
