//go:build linux

package daemontest

import (
	"flag"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	lmKillCount = flag.Int("lm.kills", 12, "TestLMKills kills so many daemons")
	lmKillSeed  = flag.Uint64("lm.kills.seed", 0, "seed of TestLMKills; 0 makes one up")
)

// TestLMKills kills daemons under clients of lm://, at any moment and at every failpoint, and clients, too. No client gets
// a wrong byte, a value whose description is another one's, or loses what the daemon has said it has; and when all are
// gone nothing is held.
func TestLMKills(t *testing.T) {
	eachKiller(t, *lmKillCount, seedOf(t, "lm.kills.seed", *lmKillSeed), []*killer{
		{name: "memory", daemon: daemonRole{LM: true, Size: 64 << 20, Grace: patience}, share: 2},
		{name: "disk below a small memory", daemon: daemonRole{LM: true, Size: 4 << 20, Grace: patience, Disk: true}, share: 2},
		{name: "hardly any grace", daemon: daemonRole{LM: true, Size: 2 << 20, Grace: 10 * time.Millisecond}, share: 1, mayLapse: true},
	}, func(k *killer, kills int) {
		dieIn := 20_000
		k.people = func() {
			for len(k.crowd.clients()) < 2 {
				k.crowd.add(role{LMClient: &lmClientRole{
					Socket: k.daemon.socket(), Keys: 100, Clients: 4, Seed: k.rng.Uint64N(1 << 20), MayMiss: k.mayLapse, DieIn: dieIn,
				}})
			}
		}
		for k.kills < kills {
			k.turn(func(*process) int { return k.rng.IntN(400) })
		}
		k.crowd.killAll()
		p := k.daemon.start(k.t, "")
		require.True(k.t, p.wait("ready"))
		p.nothingHeld()
		dieIn = 0
		k.people()
		k.work(p, 400)
		p.rests(k.crowd)
		p.end()
		require.Empty(k.t, k.crowd.wrong())
		k.report(250)
	})
}
