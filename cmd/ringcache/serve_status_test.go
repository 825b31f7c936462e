package main

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/client"
	"github.com/ringcache/ringcache/daemon/wire"
)

// TestStatusClients: hits, misses and clients, idle ones too, and not the one that asks.
func TestStatusClients(t *testing.T) {
	s := newServing(t)
	s.start()
	out, errOut, code := ringcache(t, "serve", "status", "--socket", s.socket)
	require.Zero(t, code, errOut)
	require.Regexp(t, `(?m)^WITHIN +HITS +MISSES +RATE +STORED\n\d+s +0 +0 +- +0\n\d+s +0 +0 +- +0$`, out)
	require.NotContains(t, out, "CLIENT", "status itself is none")
	c := s.dial()
	idle, err := client.Dial(t.Context(), client.Options{Socket: s.socket, Name: "vllm 0.33.0 worker 7"})
	require.NoError(t, err)
	defer idle.Close()
	put(t, c, "lease", "name", []byte("data"))
	for range 3 {
		require.Equal(t, wire.StatusHit, pin(t, c, "lease", "name").Status)
	}
	require.Equal(t, wire.StatusMiss, pin(t, c, "lease", "none").Status)
	got := askOf(t, s)
	require.Equal(t, []any{int64(3), int64(1), int64(1), 0.75},
		[]any{got.Total.Hits, got.Total.Misses, got.Total.Stored, got.Total.Rate})
	require.Equal(t, got.Total.Rate, got.Recent.Rate)
	require.Len(t, got.Clients, 2)
	require.Equal(t, statusClient{Session: c.Session(), Client: "test", PID: os.Getpid(), Space: "space", Hits: 3,
		Misses: 1, Stored: 1, Seconds: got.Clients[0].Seconds, Idle: got.Clients[0].Idle}, got.Clients[0])
	require.Equal(t, idle.Session(), got.Clients[1].Session)
	out, _, _ = ringcache(t, "serve", "status", "--socket", s.socket)
	require.Regexp(t, `(?m)^\d+s +3 +1 +75.0 % +1$`, out)
	require.Regexp(t, fmt.Sprintf(`(?m)^CLIENT +PID +SPACE +HITS +MISSES +STORED +HERE FOR +LAST CALL\ntest +%[1]d +space +3 +1 +1 +\d+s +\d+s ago\n"vllm 0.33.0 worker 7" +%[1]d +- +0 +0 +0 +`, os.Getpid()), out)
	code, body := s.get("/metrics")
	require.Equal(t, 200, code)
	for _, line := range []string{`ringcache_items_total{op="pin",status="hit"} 3`,
		`ringcache_items_total{op="pin",status="miss"} 1`, `ringcache_items_total{op="commit",status="ok"} 1`} {
		require.Contains(t, body, "\n"+line+"\n", "the metrics agree")
	}
}

// TestStatusOfABusyDaemon: a daemon that refuses another connection lives. Whoever probes it by its status
// must not end it.
func TestStatusOfABusyDaemon(t *testing.T) {
	s := newServing(t, "--max-connections=1")
	s.start()
	s.dial()
	out, errOut, code := ringcache(t, "serve", "status", "--socket", s.socket)
	require.Zero(t, code, errOut)
	require.Contains(t, out, "max-connections")
	out, errOut, code = ringcache(t, "serve", "status", "--json", "--socket", s.socket)
	require.Equal(t, 1, code, "there is nothing to print")
	require.Empty(t, out)
	require.Contains(t, errOut, "max-connections")
}
