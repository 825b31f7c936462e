package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestStatusOfABusyDaemon: a daemon that refuses another connection lives. Whoever probes it by its status must not end it.
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
