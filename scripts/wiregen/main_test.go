package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestGeneratedFilesAreUpToDate: the codec and the page are those of the table.
func TestGeneratedFilesAreUpToDate(t *testing.T) {
	t.Chdir(filepath.Join("..", "..", "daemon", "wire"))
	files, err := generate()
	require.NoError(t, err)
	require.Len(t, files, 2)
	for name, want := range files {
		got, err := os.ReadFile(name)
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), "%s; run go generate ./daemon/wire", name)
	}
}

// TestNewFields: what a new field of each kind adds to the codec and to the page.
func TestNewFields(t *testing.T) {
	const before = `package wire

const MaxNames = 1024

type Op string

const Pin Op = "pin"

type Request struct {
	ID uint64 ` + "`msg:\"id,needed\"`" + `
}
`
	field := func(line string) string { return before[:len(before)-2] + line + "\n}\n" }
	for name, c := range map[string]struct{ field, code, page string }{
		"optional":  {"Wide uint32 `msg:\"wide\" may:\"Pin\"`", `e.uint(&m, "wide", uint64(v.Wide))`, "| a request | `wide` | integer, 0 to 2^32 - 1 | maybe `pin` |"},
		"of an op":  {"Wide int `msg:\"wide\" needs:\"Pin\"`", "Pin: {needs: 1 << requestWide, may: 0}", "| a request | `wide` | integer, 0 to 2^31 - 1 | `pin` |"},
		"needed":    {"Word string `msg:\"word,needed\"`", `d.needs(seen, 1, "word")`, "| a request | `word` | text | always |"},
		"unknown":   {"Held int64 `msg:\"held,least=-1\"`", `v.Held = d.at(&seen, 1, "held").int64(-1)`, "| a request | `held` | integer, -1 to 2^63 - 1 |  |"},
		"a list":    {"All []string `msg:\"all,most=MaxNames\"`", `e.texts(&m, "all", v.All, MaxNames)`, "| a request | `all` | list of at most 1024 texts |  |"},
		"a feature": {"Note []byte `msg:\"note,since=notes\"`", `v.Note = d.at(&seen, 1, "note").bytes()`, "| a request | `note` | bytes | feature `notes` |"},
	} {
		t.Run(name, func(t *testing.T) {
			table, err := read([]byte(field(c.field)))
			require.NoError(t, err)
			code, err := table.code()
			require.NoError(t, err)
			require.Contains(t, string(code), c.code)
			page, err := table.fill([]byte("before\n" + pageBegin + "old\n" + pageEnd + "after\n"))
			require.NoError(t, err)
			require.Contains(t, string(page), c.page)
			require.NotContains(t, string(page), "old")
		})
	}
	for name, c := range map[string]struct{ field, want string }{
		"type":       {"X float64 `msg:\"x\"`", "Request.X: nothing of the type float64 can be sent"},
		"key twice":  {"X int `msg:\"id\"`", "Request.X: a key"},
		"no key":     {"X int `msg:\",needed\"`", "Request.X: a key"},
		"option":     {"X int `msg:\"x,nedeed\"`", `Request.X: what is "nedeed"`},
		"least":      {"X int `msg:\"x,least=-1\"`", "Request.X: only an int64"},
		"most":       {"X []string `msg:\"x,most=Max\"`", "Request.X: Max is no constant number"},
		"operation":  {"X int `msg:\"x\" may:\"Pni\"`", "Request.X: there is no operation Pni"},
		"without op": {"X int `msg:\"x\"`\n}\ntype Other struct {\nY int `msg:\"y\" may:\"Pin\"`", "Other.Y: only a request has operations"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := read([]byte(field(c.field)))
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestPageWithoutPlace(t *testing.T) {
	_, err := (&table{}).fill([]byte("no marks"))
	require.Error(t, err)
}
