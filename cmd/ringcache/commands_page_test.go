//go:build linux

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCommandsPage runs each command line of docs/commands.md, and compares what it prints with what stands
// below it: all but numbers. RINGCACHE_TEST_UPDATE_PAGE=1 writes what is printed into the page.
func TestCommandsPage(t *testing.T) {
	s := machine(t)
	path := filepath.Join("..", "..", "docs", "commands.md")
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Greater(t, parsesCommands(t, string(b)), 10, "the command takes every command line of the page")
	var page strings.Builder
	lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	ran := 0
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		page.WriteString(line + "\n")
		text, ok := strings.CutPrefix(line, "    $ ringcache ")
		if !ok {
			continue
		}
		var below []string
		printed := func(at int) bool {
			return at < len(lines) && strings.HasPrefix(lines[at], "    ") && !strings.HasPrefix(lines[at], "    $ ")
		}
		for printed(i+1) || i+1 < len(lines) && lines[i+1] == "" && printed(i+2) {
			i++
			below = append(below, strings.TrimPrefix(lines[i], "    "))
		}
		got := onPage(t, s, strings.Fields(text))
		for _, l := range got {
			page.WriteString(strings.TrimRight("    "+l, " ") + "\n")
		}
		if os.Getenv("RINGCACHE_TEST_UPDATE_PAGE") == "" {
			require.Equal(t, masked(below), masked(got),
				"what the page has below `ringcache %s`, and what is printed", text)
		}
		ran++
	}
	require.Equal(t, 7, ran)
	if os.Getenv("RINGCACHE_TEST_UPDATE_PAGE") != "" {
		require.NoError(t, os.WriteFile(path, []byte(page.String()), 0o600))
	}
}

// onPage runs a command on the machine of the page, and returns the lines that it printed, with the paths of
// the page.
func onPage(t *testing.T, s *serving, args []string) []string {
	t.Helper()
	if args[0] != "top" && args[0] != "doctor" {
		args = append(args, "--dir", s.shm)
	}
	cmd := command(args...)
	cmd.Env = append(cmd.Env, "RINGCACHE_SOCKET="+s.socket, "RINGCACHE_SHM_DIR="+s.shm, "VIRTUAL_ENV=", "CONDA_PREFIX=")
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		require.ErrorAs(t, err, new(*exec.ExitError), errOut.String())
	}
	text := out.String()
	if errOut.Len() > 0 {
		text += errOut.String()
	}
	text = session.ReplaceAllString(text, "HDHCRMAAECUH7EMPB7X6BZCLNM/")
	text = strings.NewReplacer(s.socket, "/run/ringcache/ringcache.sock", s.shm, "/dev/shm").Replace(text)
	if args[0] == "doctor" { // what else it finds depends on the machine
		var kept []string
		for _, l := range strings.Split(text, "\n") {
			if regexp.MustCompile(`^(ok: daemon|warning: segments|    (ringcache sweep|rm ))`).MatchString(l) {
				kept = append(kept, l)
			}
		}
		text = strings.Join(kept, "\n")
	}
	return strings.Split(strings.TrimRight(text, "\n"), "\n")
}

var (
	session = regexp.MustCompile(`[A-Z2-7]{26}/`)
	number  = regexp.MustCompile(`\d[\d.]*`)
	drawn   = regexp.MustCompile(`(?m)^[@#+w?.!r]{30,}$`)
	units   = regexp.MustCompile(`0 ?(KiB|MiB|GiB|bytes|B)\b`)
	blanks  = regexp.MustCompile(` +`)
)

// masked returns lines without what is another each time.
func masked(lines []string) string {
	text := strings.Join(lines, "\n")
	text = drawn.ReplaceAllString(text, "MAP")
	text = number.ReplaceAllString(text, "0")
	text = units.ReplaceAllString(text, "SIZE")
	text = regexp.MustCompile(`0[smh]+[0smh]*`).ReplaceAllString(text, "TIME")
	text = regexp.MustCompile(`(?m)[ \t]+$`).ReplaceAllString(text, "")
	return blanks.ReplaceAllString(text, " ")
}
