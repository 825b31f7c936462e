//go:build linux

package daemontest

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/failpoint"
)

var (
	kvKillCount = flag.Int("kv.kills", 12, "TestKVKills kills so many daemons")
	kvKillSeed  = flag.Uint64("kv.kills.seed", 0, "seed of TestKVKills; 0 makes one up")
)

// TestKVKills kills daemons under a load of engines with LMCache's connector, at any moment and at every failpoint,
// and engines, too. No engine loads a wrong byte, is answered with an error, or is refused what a look-up has found;
// when all are gone nothing is held.
func TestKVKills(t *testing.T) {
	seed := *kvKillSeed
	for seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-kv.kills.seed %d", seed)
	for i, k := range []*kvKilling{
		{name: "memory", daemon: kvDaemonRole{Size: 128 << 20, Grace: patience}, share: 2},
		{name: "disk below a small memory", daemon: kvDaemonRole{Size: 8 << 20, Grace: patience, Disk: true}, share: 1},
		{name: "hardly any grace", daemon: kvDaemonRole{Size: 8 << 20, Grace: 10 * time.Millisecond}, share: 1, mayLapse: true},
	} {
		t.Run(k.name, func(t *testing.T) {
			k.rng = rand.New(rand.NewPCG(seed, uint64(i)))
			k.run(t, (*kvKillCount*k.share+3)/4)
		})
	}
}

const kvDieIn = 20_000

// kvKilling is the daemons over one segment, one after the other.
type kvKilling struct {
	name     string
	daemon   kvDaemonRole
	share    int // of four
	mayLapse bool

	t     *testing.T
	rng   *rand.Rand
	crowd *crowd

	places                              []string
	hits                                map[string]int // kills at a failpoint
	kills, atStart, killed, descriptors int
	private                             int64
}

func (k *kvKilling) run(t *testing.T, kills int) {
	k.t, k.daemon.Dir, k.crowd, k.hits = t, folder(t), newCrowd(t), map[string]int{}
	for _, p := range failpoint.Points {
		if failpoint.Enabled && (strings.HasPrefix(p.Name, "daemon.") || strings.HasPrefix(p.Name, "tier.")) {
			k.places = append(k.places, p.Name)
		}
	}
	for k.kills < kills {
		k.turn()
		require.Empty(t, k.crowd.wrong(), "after %d kills", k.kills)
	}
	k.crowd.killAll()
	p := startDaemon(t, role{KVDaemon: &k.daemon}, "")
	require.True(t, p.wait("ready"))
	p.nothingHeld()
	k.people(0)
	k.work(p, 100)
	p.rests(k.crowd)
	p.end()
	require.Empty(t, k.crowd.wrong())
	t.Logf("%d kills, %d of them at %d of %d failpoints and %d before the daemon served; clients: %d killed, %d ended themselves; the most of a daemon: %d descriptors, %.1f MiB of its own",
		k.kills, total(k.hits), len(k.hits), len(k.places), k.atStart, k.killed, k.crowd.died-k.killed, k.descriptors, float64(k.private)/(1<<20))
	for _, what := range slices.Sorted(maps.Keys(k.crowd.counts)) {
		t.Logf("%12d %s", k.crowd.counts[what], what)
	}
	require.Less(t, k.descriptors, 250)
	if !failpoint.Enabled { // the race detector takes more
		require.Less(t, k.private, int64(256<<20))
	}
}

// people sees to it that there are clients, which die by themselves at one of so many stages.
func (k *kvKilling) people(dieIn int) {
	for len(k.crowd.clients()) < 2 {
		k.crowd.add(role{KVClient: &kvClientRole{
			Target: "unix:" + k.daemon.socket(), Dir: k.daemon.Dir, Prompts: 64, Sessions: 2, Seed: k.rng.Uint64(), MayLapse: k.mayLapse, DieIn: dieIn,
		}})
	}
}

// turn is the life of one daemon.
func (k *kvKilling) turn() {
	place := ""
	if len(k.places) > 0 && k.rng.IntN(2) == 0 {
		place = fmt.Sprint(k.places[k.rng.IntN(len(k.places))], ":", 1+k.rng.IntN(2)*k.rng.IntN(60))
	}
	p := startDaemon(k.t, role{KVDaemon: &k.daemon}, place)
	k.people(kvDieIn)
	stage := "ready"
	if place == "" && k.rng.IntN(8) == 0 {
		stage = []string{"memory", "server"}[k.rng.IntN(2)]
	}
	if p.wait(stage) && stage == "ready" {
		k.work(p, k.rng.IntN(60))
		if d, private, _ := takes(p.cmd.Process.Pid); d > 0 {
			k.descriptors, k.private = max(k.descriptors, d), max(k.private, private)
		}
		death := strings.HasPrefix(place, "daemon.died:") // which only the death of a client brings about
		if list := k.crowd.clients(); len(list) > 0 && (death || k.rng.IntN(8) == 0) {
			k.killed++
			_ = list[k.rng.IntN(len(list))].cmd.Process.Kill()
		}
		if death {
			k.work(p, 20)
		}
		time.Sleep(time.Duration(k.rng.IntN(3000)) * time.Microsecond) // not right after a request's end
	} else {
		k.atStart++
	}
	select {
	case <-p.ended:
		name, _, _ := strings.Cut(place, ":")
		k.hits[name]++
	default:
		p.kill()
	}
	require.Empty(k.t, p.bad, "what a daemon complained about, after %d kills", k.kills)
	require.Negative(k.t, p.cmd.ProcessState.ExitCode(), "it was killed")
	k.kills++
}

// work waits until engines have ended so many requests, or the daemon has ended.
func (k *kvKilling) work(p *process, requests int) {
	for len(k.crowd.steps) > 0 {
		<-k.crowd.steps
	}
	late := time.After(patience)
	for done := 0; done < requests; {
		select {
		case <-k.crowd.steps:
			done++
		case <-k.crowd.ends:
			if len(k.crowd.wrong()) > 0 {
				return
			}
			k.people(kvDieIn)
		case <-p.ended:
			return
		case <-late:
			k.t.Fatalf("after %d kills, engines do nothing: %q", k.kills, k.crowd.wrong())
		}
	}
}
