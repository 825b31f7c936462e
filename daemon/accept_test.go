//go:build linux

package daemon

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/wire"
)

// TestRefusedConnectionsAreLogged: that there are too many connections, of all or of one process, is in the
// log, once in a while.
func TestRefusedConnectionsAreLogged(t *testing.T) {
	for name, most := range map[string]int{"of all": 4, "of a process": 12} {
		t.Run(name, func(t *testing.T) {
			log := &syncBuffer{}
			b := newBed(t, func(b *bed) {
				b.so.Logger = slog.New(slog.NewTextHandler(log, nil))
				b.so.Limits = Limits{MaxConnections: most}
			})
			one := newPuppet(t)
			for i := range most { // of a process: it has a quarter of 12
				p := one
				if name == "of all" {
					p = newPuppet(t)
				}
				_ = p.dial(b.socket).do(helloOf(session1 + strings.Repeat("x", i)))
			}
			for range 3 {
				one.dial(b.socket).refused(wire.KindBusy, helloOf("session-late"))
			}
			b.server.records.flush(2 * time.Minute)
			require.Equal(t, 1, strings.Count(log.String(), "a connection was refused"))
			require.Contains(t, log.String(), "max-connections")
		})
	}
}
