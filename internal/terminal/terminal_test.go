package terminal

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// odd are characters that a terminal obeys, or that nobody sees.
var odd = []string{
	"\x00", "\a", "\x1b", "\x7f", "\u0085", "\u009b", "\u00ad", "\u061c", "\u200b", "\u200e", "\u200f", "\u2028", "\u2029", "\u202a", "\u202e", "\u2066", "\u2069", "\ufeff",
	"\U000e0001", "\U000e007f",
}

func TestControlCharacters(t *testing.T) {
	for _, c := range odd {
		s := "a" + c + "b"
		require.False(t, Printable(s), "%q", s)
		for _, shown := range []string{Text(s), Quote(s), Lines(s), Error(errors.New(s)).Error()} {
			require.NotContains(t, shown, c)
			require.True(t, Printable(shown), "%q", shown)
		}
		var b bytes.Buffer
		require.NoError(t, json.NewEncoder(Writer(&b)).Encode(map[string]string{s: s}))
		require.NotContains(t, b.String(), c)
		require.True(t, Printable(strings.TrimSuffix(b.String(), "\n")), "%q", b.String())
		var back map[string]string
		require.NoError(t, json.Unmarshal(b.Bytes(), &back))
		require.Equal(t, map[string]string{s: s}, back, "the value is the same")
		b.Reset()
		slog.New(slog.NewJSONHandler(Writer(&b), nil)).Info("m", "key", s)
		require.NotContains(t, b.String(), c)
		require.True(t, json.Valid(b.Bytes()))
	}
	for _, s := range []string{"a", "naïve", "日本", "😀", `"quoted"`, "a b"} {
		require.True(t, Printable(s), "%q", s)
		require.Equal(t, s, Lines(s))
		b, err := json.Marshal(s)
		require.NoError(t, err)
		require.Equal(t, b, JSON(b), "what can be seen stays")
	}
	require.Equal(t, `"a b"`, Quote("a b"))
	require.Equal(t, "a b", Text("a b"))
	require.Equal(t, "one\ntwo", Lines("one\ntwo"))
	require.Equal(t, `a\xff\u202e`, Lines("a\xff\u202e"))
	require.NoError(t, Error(nil))
	require.ErrorIs(t, Error(fs.ErrExist), fs.ErrExist)
	require.Equal(t, `"\udb40\udc01"`, string(JSON([]byte("\"\U000e0001\""))))
}

func FuzzJSON(f *testing.F) {
	f.Add(strings.Join(odd, ""))
	f.Add("\xff\xc2")
	f.Fuzz(func(t *testing.T, s string) {
		b, err := json.Marshal(s)
		require.NoError(t, err)
		var want, got string
		require.NoError(t, json.Unmarshal(b, &want))
		shown := JSON(b)
		require.NoError(t, json.Unmarshal(shown, &got))
		require.Equal(t, want, got)
		require.True(t, utf8.Valid(shown))
		require.False(t, bytes.ContainsFunc(shown, func(r rune) bool { return !unicode.IsPrint(r) }))
	})
}
