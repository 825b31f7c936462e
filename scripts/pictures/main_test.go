package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPicturesAreThoseOfTheirSources: each picture of docs is what its text draws, and shows in light and dark.
func TestPicturesAreThoseOfTheirSources(t *testing.T) {
	sources, err := filepath.Glob("../../docs/pictures/*.d2")
	if err != nil || len(sources) < 2 {
		t.Fatal(sources, err)
	}
	for _, source := range sources {
		want, err := draw(source)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(strings.TrimSuffix(source, ".d2") + ".svg")
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: the picture is not that of the text: make pictures", source)
		}
		if !bytes.Contains(got, []byte("prefers-color-scheme:dark")) {
			t.Errorf("%s: no colours for dark", source)
		}
	}
}

// TestRunRefuses what is no folder of diagrams, and what is no diagram.
func TestRunRefuses(t *testing.T) {
	dir := t.TempDir()
	if err := run(dir); err == nil || !strings.Contains(err.Error(), "no *.d2") {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a.d2"), []byte("a -> {"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(dir); err == nil || !strings.Contains(err.Error(), "a.d2") {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a.d2"), []byte("a -> b"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(dir); err != nil {
		t.Error(err)
	}
	if drawn, err := os.ReadFile(filepath.Join(dir, "a.svg")); err != nil || !bytes.Contains(drawn, []byte("<svg")) {
		t.Error(err)
	}
}
