package main

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/wire"
)

// TestControlCharacters: no command shows what a client chose as a terminal would obey it, and JSON has the
// same value all the same.
func TestControlCharacters(t *testing.T) {
	const evil = "\x1b]0;pwned\a\x1b[2J\x1b[31mEVIL\r\n\u009b31m\u202e\u2066x\u0085\u200b\ufeff\x7f"
	folder := t.TempDir()
	s := newServing(t, "--disk", folder, "--log-format", "json")
	s.launch(command(append([]string{"serve"}, s.flags...)...))
	s.wait(`"msg":"serving"`)
	c := s.dial()
	items, err := c.Reserve(t.Context(), wire.Request{Lease: "lease", Space: "sp" + evil, Objects: []wire.Object{
		{Name: "na" + evil, Size: 3, Parent: "pa" + evil, Tenant: "te" + evil, Note: []byte("no" + evil)},
	}})
	require.Equal(t, wire.StatusReserved, one(t, items, err).Status)
	items, err = c.Commit(t.Context(), wire.Request{Lease: "lease", Space: "sp" + evil, Names: []string{"na" + evil},
		Keep: true})
	require.Equal(t, wire.StatusOK, one(t, items, err).Status)
	require.NoError(t, c.Clear(t.Context(), "sp"+evil))
	clean := func(what, text string) {
		t.Helper()
		for _, line := range strings.Split(text, "\n") {
			require.False(t, strings.ContainsFunc(line, notPrintable), "%s: %q", what, line)
		}
	}
	s.wait(`"msg":"objects were deleted"`)
	s.signal(syscall.SIGINT)
	require.Zero(t, s.end(), s.text())
	clean("log", s.text())
	for _, line := range strings.Split(s.text(), "\n") {
		require.True(t, json.Valid([]byte(line)), line)
	}

	for _, level := range []string{folder, "shm:ringcache"} {
		for _, args := range [][]string{{"ls"}, {"ls", "--json"}, {"verify"}, {"verify", "--json"},
			{"get", "--space", "sp" + evil}, {"rm", "--space", "sp" + evil}, {"rm", "--json", "--space", "sp" + evil}} {
			args = append([]string{"tier", args[0], "--dir", s.shm, level}, args[1:]...)
			if args[1] == "get" || args[1] == "rm" {
				args = append(args, "none"+evil)
			}
			out, errOut, _ := ringcache(t, args...)
			clean(args[1], out)
			clean(args[1], errOut)
			if args[1] == "ls" {
				require.Contains(t, out, "EVIL")
			}
		}
		out, _, code := ringcache(t, "tier", "ls", "--json", "--dir", s.shm, level)
		require.Zero(t, code)
		var got listed
		require.NoError(t, json.Unmarshal([]byte(out), &got))
		require.Equal(t, listed{Space: "sp" + evil, Name: "na" + evil, Size: 3, Parent: "pa" + evil,
			Tenant: "te" + evil, Note: "no" + evil}, got)
	}
}

func notPrintable(r rune) bool { return !unicode.IsPrint(r) }
