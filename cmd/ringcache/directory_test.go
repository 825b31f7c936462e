package main

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
)

// directoryOf is the command with arguments.
func directoryOf(t *testing.T, args ...string) directoryCommand {
	c := newCommands()
	parser, err := kong.New(c, options()...)
	require.NoError(t, err)
	_, err = parser.Parse(append([]string{"directory"}, args...))
	require.NoError(t, err)
	return c.Directory
}

// TestDirectory: it serves what it is told to, ends with its context, and /metrics has what the page says.
func TestDirectory(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "directory.md"))
	require.NoError(t, err)
	require.Greater(t, parsesCommands(t, string(page)), 2, "the page has commands")

	ctx, cancel := context.WithCancel(t.Context())
	ready, done := make(chan map[string]string, 1), make(chan error, 1)
	free := "127.0.0.1:0"
	c := directoryOf(t, "--http", free, "--max-connections", "8", "--pull", free, "--reply", free,
		"--heartbeat", free, "--events", "tcp://127.0.0.1:1,instance=a,model=m")
	go func() {
		done <- c.run(ctx, slog.New(slog.DiscardHandler), func(addrs map[string]string) { ready <- addrs })
	}()
	var addrs map[string]string
	select {
	case addrs = <-ready:
	case err := <-done:
		require.NoError(t, err)
	}
	require.Len(t, addrs, 4)
	get := func(path string) string {
		r, err := http.Get("http://" + addrs["http"] + path)
		require.NoError(t, err)
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		return string(b)
	}
	require.JSONEq(t, `{"status": "healthy"}`, get("/healthz"))
	shown := map[string]bool{}
	metric := regexp.MustCompile(`(?m)^ringcache_directory_(\w+)[ {]`)
	for _, m := range metric.FindAllStringSubmatch(get("/metrics"), -1) {
		shown[m[1]] = true
		require.Contains(t, string(page), "`"+m[1]+"`")
	}
	_, table, _ := strings.Cut(string(page), "| metric | what |")
	for _, m := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(table, -1) {
		require.True(t, shown[m[1]], m[1])
	}
	post, err := http.Post("http://"+addrs["http"]+"/directory/longest", "application/json",
		strings.NewReader(`{"token_ids": [1], "model_name": "m"}`))
	require.NoError(t, err)
	defer post.Body.Close()
	b, err := io.ReadAll(post.Body)
	require.NoError(t, err)
	require.JSONEq(t, `{"chunks": 0, "instances": []}`, string(b))
	http.DefaultClient.CloseIdleConnections()

	for range 20 { // idle connections keep nobody from being served
		c, err := net.Dial("tcp", addrs["http"])
		require.NoError(t, err)
		defer c.Close()
		_, err = c.Write([]byte("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"))
		require.NoError(t, err)
		_, err = c.Read(make([]byte, 1))
		require.NoError(t, err)
	}

	second := directoryOf(t, "--http", addrs["http"])
	require.ErrorContains(t, second.run(t.Context(), slog.New(slog.DiscardHandler), nil), "http: ")
	twice := directoryOf(t, "--events", "tcp://h:1,instance=a,model=m", "--events", "tcp://h:2,instance=a,model=m")
	require.ErrorContains(t, twice.run(t.Context(), slog.New(slog.DiscardHandler), nil), "another source")
	for _, wrong := range []string{"x", "tcp://h:1", "tcp://h:1,instance=a,other=b"} {
		err := directoryOf(t, "--events", wrong).run(t.Context(), slog.New(slog.DiscardHandler), nil)
		require.ErrorContains(t, err, "--events "+wrong)
	}
	cancel()
	require.NoError(t, <-done)
}
