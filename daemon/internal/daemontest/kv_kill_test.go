//go:build linux

package daemontest

import (
	"flag"
	"testing"
	"time"
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
		{
			name: "memory", share: 2,
			daemon: daemonRole{Protocol: protocolKV, Size: 128 << 20, Grace: patience},
		},
		{
			name: "disk below a small memory", share: 1,
			daemon: daemonRole{Protocol: protocolKV, Size: 8 << 20, Grace: patience, Disk: true},
		},
		{
			name: "hardly any grace", share: 1, mayLapse: true,
			daemon: daemonRole{Protocol: protocolKV, Size: 8 << 20, Grace: 10 * time.Millisecond},
		},
	}, func(k *killer, kills int) {
		k.killUnderClients(kills, 60, func(dieIn int) role {
			return role{KVClient: &kvClientRole{
				Target: "unix:" + k.daemon.socket(), Dir: k.daemon.Dir, Prompts: 64, Sessions: 2, Seed: k.rng.Uint64(),
				MayLapse: k.mayLapse, DieIn: dieIn,
			}}
		})
	})
}
