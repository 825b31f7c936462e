//go:build linux

package daemontest

import (
	"flag"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	kvKillCount = flag.Int("kv.kills", 12, "TestKVKills kills so many daemons")
	kvKillSeed  = flag.Uint64("kv.kills.seed", 0, "seed of TestKVKills; 0 makes one up")
)

// TestKVKills kills daemons under a load of engines with LMCache's connector, at any moment and at every failpoint,
// and engines, too. No engine loads a wrong byte, is answered with an error, or is refused what a look-up has found;
// when all are gone nothing is held.
func TestKVKills(t *testing.T) {
	eachKiller(t, *kvKillCount, seedOf(t, "kv.kills.seed", *kvKillSeed), []*killer{
		{name: "memory", daemon: daemonRole{LMCache: true, Size: 128 << 20, Grace: patience}, share: 2},
		{name: "disk below a small memory", daemon: daemonRole{LMCache: true, Size: 8 << 20, Grace: patience, Disk: true}, share: 1},
		{name: "hardly any grace", daemon: daemonRole{LMCache: true, Size: 8 << 20, Grace: 10 * time.Millisecond}, share: 1, mayLapse: true},
	}, func(k *killer, kills int) {
		dieIn := 20_000
		k.people = func() {
			for len(k.crowd.clients()) < 2 {
				k.crowd.add(role{KVClient: &kvClientRole{
					Target: "unix:" + k.daemon.socket(), Dir: k.daemon.Dir, Prompts: 64, Sessions: 2, Seed: k.rng.Uint64(), MayLapse: k.mayLapse, DieIn: dieIn,
				}})
			}
		}
		for k.kills < kills {
			k.turn(func(*process) int { return k.rng.IntN(60) })
		}
		k.crowd.killAll()
		p := k.daemon.start(k.t, "")
		require.True(k.t, p.wait("ready"))
		p.nothingHeld()
		dieIn = 0
		k.people()
		k.work(p, 100)
		p.rests(k.crowd)
		p.end()
		require.Empty(k.t, k.crowd.wrong())
		k.report(250)
	})
}
