package main

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// TestFunctions: a function counts with its calls, a condition about an error only
// where its block ran, and a function that did not run not at all.
func TestFunctions(t *testing.T) {
	const source = `package p

func ran() error {
	if err := f(); err != nil {
		return err
	}
	if n > 1 {
		if err := f(); errors.Is(err, g) {
			return err
		}
	}
	return nil
}

func (t *T[K]) twice() {
	if n > 1 {
		return
	}
}

func not() {
}
`
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "p.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := functions(root, "p.go", []block{
		{StartLine: 3, StartCol: 18, EndLine: 4, EndCol: 28, Count: 1},
		{StartLine: 7, StartCol: 2, EndLine: 7, EndCol: 11, Count: 1},
		{StartLine: 12, StartCol: 2, EndLine: 12, EndCol: 12, Count: 1},
		{StartLine: 15, StartCol: 24, EndLine: 16, EndCol: 11, Count: 2},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []function{
		{file: "p.go", name: "ran", line: 3, calls: 1, checks: 1},
		{file: "p.go", name: "T.twice", line: 15, calls: 2},
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("got %+v, want %+v", got, want)
	}
}
