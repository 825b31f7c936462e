//go:build linux

package daemon

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/wire"
)

// TestFeatures: a feature is used only if both sides named it. The daemon has none yet, so the test names
// one.
func TestFeatures(t *testing.T) {
	b := newBed(t, nil)
	hello := wire.Request{Op: wire.Hello, Version: wire.Version, Session: session1, Client: "test", Features: []string{"of both", "of the client"}}
	p := b.dial()
	require.Empty(t, p.ok(hello).Features)
	b.restart()
	b.server.features = []string{"of the daemon", "of both"}
	p = b.dial()
	require.Equal(t, []string{"of both"}, p.ok(hello).Features)
	hello.Features = nil
	require.Empty(t, p.ok(hello).Features, "by the newest hello")
	require.Equal(t, []string{"of the daemon", "of both"}, b.server.features)
}

// TestUnknownOperation: a client of a later version is told that there is no such operation, before hello
// and after it, and its connection, session and leases stay.
func TestUnknownOperation(t *testing.T) {
	b := newBed(t, nil)
	p := b.dial()
	require.Contains(t, p.refused(wire.KindUnsupported, wire.Request{Op: "compact"}), `operation "compact"`)
	p.hello(session1)
	p.store(b, "a")
	p.pin("l", "a")
	require.Contains(t, p.refused(wire.KindUnsupported, wire.Request{Op: "compact", Lease: "l", Space: space, Names: []string{"a"}}), `operation "compact"`)
	require.Equal(t, all(wire.StatusHit, 1), statuses(p.get("l", "a")))
	require.Contains(t, b.server.Counters().Refused, RefusedCounter{wire.KindUnsupported, 2})
	p.release("l")
}
