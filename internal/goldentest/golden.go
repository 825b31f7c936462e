// Package goldentest loads the golden vectors in testdata/golden, which
// scripts/golden makes by running released versions of vLLM.
package goldentest

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/pycompat"
)

// File is one golden file: the vectors of one section, for all the releases
// that gave identical ones.
type File struct {
	Name     string
	Releases []string
	Data     json.RawMessage
}

// Dir returns the folder of the golden files.
func Dir() string {
	_, self, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(self), "..", "..", "testdata", "golden")
}

// Files returns the golden files of a section, oldest release first. There must
// be some.
func Files(t testing.TB, section string) []File {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(Dir(), section+".*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, paths, "no golden files of %s in %s", section, Dir())
	sort.Strings(paths)
	var out []File
	for _, p := range paths {
		b, err := os.ReadFile(p)
		require.NoError(t, err)
		var f struct {
			Releases []string        `json:"releases"`
			Data     json.RawMessage `json:"data"`
		}
		require.NoError(t, json.Unmarshal(b, &f), p)
		require.NotEmpty(t, f.Releases, p)
		out = append(out, File{strings.TrimSuffix(filepath.Base(p), ".json"), f.Releases, f.Data})
	}
	return out
}

// Decode unmarshals the file's vectors.
func (f File) Decode(t testing.TB, into any) {
	t.Helper()
	require.NoError(t, json.Unmarshal(f.Data, into), f.Name)
}

// Unmarshal returns the value of a part of the vectors.
func Unmarshal[T any](t testing.TB, raw json.RawMessage) T {
	t.Helper()
	var v T
	require.NoError(t, json.Unmarshal(raw, &v), "%s", raw)
	return v
}

// Generation returns the generation of the file's first release.
func (f File) Generation(t testing.TB) *pycompat.Generation {
	t.Helper()
	g, err := pycompat.Lookup(f.Releases[0])
	require.NoError(t, err)
	return g
}

// Hex decodes a hexadecimal string.
func Hex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	require.NoError(t, err)
	return b
}

// Error is an error as the generator writes it.
type Error struct {
	Type string `json:"err"`
	Msg  string `json:"msg"`
}

// AsError returns the error in a result, or nil if it is none.
func AsError(raw json.RawMessage) *Error {
	var e Error
	if json.Unmarshal(raw, &e) != nil || e.Type == "" {
		return nil
	}
	return &e
}

// ItemForms returns the newest release of each form of items, the oldest form first: for tests that hold in every form.
func ItemForms() []*pycompat.Generation {
	var out []*pycompat.Generation
	for _, g := range pycompat.Releases() {
		if n := len(out); n > 0 && out[n-1].ItemForm == g.ItemForm {
			out[n-1] = g
		} else {
			out = append(out, g)
		}
	}
	return out
}
