//go:build linux

package daemon

import (
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/encoder/wire"
)

// written is a log that tests read while it is written.
type written struct {
	mu   sync.Mutex
	text strings.Builder
}

func (w *written) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(b)
}

func (w *written) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// TestRefusedConnectionsAreLogged: that there are too many connections, of all or of one process, is in the log, once in a while.
func TestRefusedConnectionsAreLogged(t *testing.T) {
	for name, most := range map[string]int{"of all": 4, "of a process": 12} {
		t.Run(name, func(t *testing.T) {
			log := &written{}
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
			b.eventually("the log has it", func() bool { return strings.Contains(log.String(), "a connection was refused") })
			require.Equal(t, 1, strings.Count(log.String(), "a connection was refused"))
			require.Contains(t, log.String(), "max-connections")
		})
	}
}
