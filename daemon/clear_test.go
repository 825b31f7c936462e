//go:build linux

package daemon

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/encoder/wire"
	"github.com/ringcache/ringcache/tier"
)

// TestClearOfWhatIsNoSpace: a space that nothing can be stored in is neither kept nor logged: it may have as many bytes as a request.
func TestClearOfWhatIsNoSpace(t *testing.T) {
	b := newBed(t, nil)
	p := b.hello(session1)
	for _, wrong := range []string{strings.Repeat("s", tier.MaxSpace+1), strings.Repeat("s", 1<<19), "a\x00"} {
		require.Contains(t, p.refused(wire.KindInvalid, wire.Request{Op: wire.Clear, Space: wrong}), "space")
	}
	p.ok(wire.Request{Op: wire.Clear, Space: strings.Repeat("s", tier.MaxSpace)})
	p.ok(wire.Request{Op: wire.Clear})
}
