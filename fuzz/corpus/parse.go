package corpus

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
)

// header is the first line of a file in the format of `go test -fuzz`, version 1.
const header = "go test fuzz v1"

// Parse reads a file that `go test -fuzz` wrote: the arguments of a fuzz target, of the types []byte,
// string, bool, byte, int, and unsigned integers.
func Parse(b []byte) (args []any, err error) {
	lines := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	if lines[0] != header {
		return nil, fmt.Errorf("the first line is %.40q, want %q", lines[0], header)
	}
	for _, line := range lines[1:] {
		arg, err := argument(line)
		if err != nil {
			return nil, fmt.Errorf("%.80q: %w", line, err)
		}
		args = append(args, arg)
	}
	return args, nil
}

// argument reads a conversion of a literal, such as uint16(7).
func argument(line string) (any, error) {
	expr, err := parser.ParseExpr(line)
	if err != nil {
		return nil, err
	}
	call, ok := expr.(*ast.CallExpr)
	if !ok || len(call.Args) != 1 {
		return nil, errors.New("no conversion")
	}
	name := "[]byte"
	if id, ok := call.Fun.(*ast.Ident); ok {
		name = id.Name
	} else if _, ok := call.Fun.(*ast.ArrayType); !ok {
		return nil, errors.New("no type")
	}
	switch v := call.Args[0].(type) {
	case *ast.Ident:
		return v.Name == "true", nil
	case *ast.BasicLit:
		return literal(name, v)
	}
	return nil, errors.New("no literal")
}

func literal(name string, v *ast.BasicLit) (any, error) {
	switch v.Kind {
	case token.STRING:
		s, err := strconv.Unquote(v.Value)
		if name == "string" {
			return s, err
		}
		return []byte(s), err
	case token.CHAR:
		s, err := strconv.Unquote(v.Value)
		if err != nil || name != "byte" {
			return nil, fmt.Errorf("a %s of %s", name, v.Value)
		}
		r := []rune(s)[0]
		return byte(r), nil
	case token.INT:
		n, err := strconv.ParseUint(v.Value, 0, 64)
		switch name {
		case "byte", "uint8":
			return byte(n), err
		case "uint16":
			return uint16(n), err
		case "uint32":
			return uint32(n), err
		case "uint64":
			return n, err
		case "int":
			return int(n), err
		}
	}
	return nil, fmt.Errorf("a %s is not read here", name)
}
