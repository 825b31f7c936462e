package goldentest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/pycompat"
)

// Each runs a subtest for every release of the file.
func (f File) Each(t *testing.T, fn func(t *testing.T, g *pycompat.Generation)) {
	for _, r := range f.Releases {
		g, err := pycompat.Lookup(r)
		require.NoError(t, err)
		t.Run(r, func(t *testing.T) { fn(t, g) })
	}
}

// Section returns a part of the file's vectors, nil if there is none of that name.
func (f File) Section(t testing.TB, name string) json.RawMessage {
	t.Helper()
	var all map[string]json.RawMessage
	f.Decode(t, &all)
	return all[name]
}

// Rows returns the vectors of a section. There must be some.
func Rows[T any](t testing.TB, f File, section string) []T {
	t.Helper()
	var out []T
	require.NoError(t, json.Unmarshal(f.Section(t, section), &out))
	require.NotEmpty(t, out, "%s has no rows in %s", f.Name, section)
	return out
}

// Frames is a named row of encoded frames.
type Frames struct {
	Name   string
	Frames []Blob
}

// Equal compares all frames.
func (r Frames) Equal(t testing.TB, got [][]byte) {
	t.Helper()
	require.Len(t, got, len(r.Frames), r.Name)
	for i, want := range r.Frames {
		want.Equal(t, got[i], r.Name)
	}
}

// Blob is a byte string, or its length and hash where it is long.
type Blob struct {
	Raw  []byte
	Len  int
	Hash string
}

// UnmarshalJSON reads hexadecimal text, or an object of len and sha256.
func (b *Blob) UnmarshalJSON(j []byte) error {
	if j[0] == '"' {
		raw, err := hex.DecodeString(strings.Trim(string(j), `"`))
		if raw == nil {
			raw = []byte{}
		}
		b.Raw, b.Len = raw, len(raw)
		return err
	}
	var v struct {
		Len    int
		Sha256 string
	}
	err := json.Unmarshal(j, &v)
	b.Len, b.Hash = v.Len, v.Sha256
	return err
}

// Equal compares got with the blob, by its hash where that is all there is.
func (b Blob) Equal(t testing.TB, got []byte, what string) {
	t.Helper()
	if b.Raw != nil {
		require.Equal(t, hex.EncodeToString(b.Raw), hex.EncodeToString(got), what)
		return
	}
	require.Equal(t, b.Len, len(got), what)
	require.Equal(t, b.Hash, Sum(got), what)
}

// Sum returns the SHA-256 of b in hexadecimal.
func Sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// Sequence returns the n bytes add, mul+add, 2*mul+add and so on.
func Sequence(n, mul, add int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*mul + add)
	}
	return b
}

// Report prints what was checked and skipped, and fails when nothing was checked.
func (f File) Report(t testing.TB, checked int, skipped map[string]int) {
	t.Helper()
	require.Positive(t, checked)
	var why []string
	for k, n := range skipped {
		why = append(why, strconv.Itoa(n)+" "+k)
	}
	slices.Sort(why)
	t.Logf("%s: %d checked, skipped: %s", f.Name, checked, strings.Join(append(why, "-"), "; "))
}
