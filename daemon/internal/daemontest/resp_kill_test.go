//go:build linux

package daemontest

import (
	"flag"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	respKillCount = flag.Int("resp.kills", 12, "TestRESPKills kills so many daemons")
	respKillSeed  = flag.Uint64("resp.kills.seed", 0, "seed of TestRESPKills; 0 makes one up")
)

// respGrace is how long what EXISTS has pinned outlives a daemon that was killed: no process owns it.
const respGrace = 100 * time.Millisecond

// TestRESPKills kills daemons under clients of Redis's protocol, at any moment and at every failpoint, and clients, too.
// No client gets a wrong byte, an answer of another command, or loses what the daemon has said it has; and when all are gone
// nothing is held.
func TestRESPKills(t *testing.T) {
	eachKiller(t, *respKillCount, seedOf(t, "resp.kills.seed", *respKillSeed), []*killer{
		{name: "memory", daemon: daemonRole{RESP: true, Size: 64 << 20, Grace: respGrace}, share: 2},
		{name: "disk below a small memory", daemon: daemonRole{RESP: true, Size: 4 << 20, Grace: respGrace, Disk: true}, share: 2},
		{name: "hardly any memory", daemon: daemonRole{RESP: true, Size: 2 << 20, Grace: respGrace}, share: 1, mayLapse: true},
	}, func(k *killer, kills int) {
		dieIn := 20_000
		k.people = func() {
			for len(k.crowd.clients()) < 2 {
				k.crowd.add(role{RESPClient: &respClientRole{
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
