//go:build linux

package daemontest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/failpoint"
)

// killer starts daemons over one segment, one after the other, and kills them under a load: at any moment, or at a
// failpoint. It kills clients, too.
type killer struct {
	name              string
	daemon            daemonRole
	share             int // of the kills of all killers
	mayFull, mayLapse bool
	people            func() // sees to it that there are clients

	t     *testing.T
	rng   *rand.Rand
	crowd *crowd

	places                       []string
	hits                         map[string]int // kills at a failpoint
	kills, atStart, ends, killed int            // killed are clients
	descriptors                  int            // the most
	private                      int64
}

// eachKiller runs some killers in sub-tests, each with its share of the kills.
func eachKiller(t *testing.T, kills int, seed uint64, killers []*killer, run func(k *killer, kills int)) {
	t.Helper()
	shares := 0
	for _, k := range killers {
		shares += k.share
	}
	for i, k := range killers {
		t.Run(k.name, func(t *testing.T) {
			k.t, k.rng, k.crowd = t, rand.New(rand.NewPCG(seed, uint64(i))), newCrowd(t)
			k.daemon.Dir, k.hits = folder(t), map[string]int{}
			for _, p := range failpoint.Points {
				if failpoint.Enabled && (strings.HasPrefix(p.Name, "daemon.") || strings.HasPrefix(p.Name, "tier.")) &&
					(k.mayLapse || p.Name != "daemon.abandoned") {
					k.places = append(k.places, p.Name)
				}
			}
			run(k, (kills*k.share+shares-1)/shares)
		})
	}
}

// turn is the life of one daemon. It begins with what ready does, and serves as many steps as that returns.
func (k *killer) turn(ready func(p *process) (steps int)) {
	place := ""
	if len(k.places) > 0 && k.rng.IntN(2) == 0 {
		place = fmt.Sprint(k.places[k.rng.IntN(len(k.places))], ":", 1+k.rng.IntN(2)*k.rng.IntN(60))
	}
	if k.kills == 0 && failpoint.Enabled {
		place = "tier.memory.created:1" // there is no other time
	}
	p := k.daemon.start(k.t, place)
	k.people()
	stage := "ready"
	if place == "" && k.rng.IntN(6) == 0 {
		stage = []string{"memory", "levels", "store", "server"}[k.rng.IntN(4)]
	}
	if !p.wait(stage) || stage != "ready" {
		k.atStart++
		k.kill(p, place)
		return
	}
	k.work(p, ready(p))
	if d, private, _ := takes(p.cmd.Process.Pid); d > 0 {
		k.descriptors, k.private = max(k.descriptors, d), max(k.private, private)
	}
	death := strings.HasPrefix(place, "daemon.died:") // which only the death of a client brings about
	if list := k.crowd.clients(); len(list) > 0 && (death || k.rng.IntN(5) == 0) {
		k.killed++
		_ = list[k.rng.IntN(len(list))].cmd.Process.Kill()
	}
	if death {
		k.work(p, 50)
	}
	if place == "" && k.rng.IntN(20) == 0 {
		k.ends++
		p.end()
		return
	}
	time.Sleep(time.Duration(k.rng.IntN(3000)) * time.Microsecond) // not right after a step's end
	k.kill(p, place)
}

// kill ends a daemon, unless it has ended itself at a failpoint.
func (k *killer) kill(p *process, place string) {
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
	require.Empty(k.t, k.crowd.wrong(), "after %d kills", k.kills)
}

// work waits until clients have done so many steps, or the daemon has ended.
func (k *killer) work(p *process, steps int) {
	for len(k.crowd.steps) > 0 {
		<-k.crowd.steps
	}
	late := time.After(patience)
	for done := 0; done < steps; {
		select {
		case <-k.crowd.steps:
			done++
		case <-k.crowd.ends:
			if len(k.crowd.wrong()) > 0 {
				return
			}
			k.people()
		case <-p.ended:
			return
		case <-late:
			k.t.Fatalf("after %d kills, clients do nothing: %q", k.kills, k.crowd.wrong())
		}
	}
}

// killUnderClients kills daemons, each after up to so many steps of two processes of clients. When all clients have
// been killed, too, the next daemon holds nothing; nor does it when others have come and rest.
func (k *killer) killUnderClients(kills, steps int, client func(dieIn int) role) {
	dieIn := 20_000
	k.people = func() {
		for len(k.crowd.clients()) < 2 {
			k.crowd.add(client(dieIn))
		}
	}
	for k.kills < kills {
		k.turn(func(*process) int { return k.rng.IntN(steps) })
	}
	k.crowd.killAll()
	p := k.daemon.start(k.t, "")
	require.True(k.t, p.wait("ready"))
	p.nothingHeld()
	dieIn = 0
	k.people()
	k.work(p, steps)
	p.rests(k.crowd)
	p.end()
	require.Empty(k.t, k.crowd.wrong())
	k.report(250)
}

// report logs what was done, and bounds what daemons took.
func (k *killer) report(descriptors int) {
	sum := 0
	for _, n := range k.hits {
		sum += n
	}
	k.t.Logf("%d kills, %d of them at %d of %d failpoints and %d before the daemon served, %d ends in peace; clients: %d killed, %d ended themselves; the most of a daemon: %d descriptors, %.1f MiB of its own",
		k.kills, sum, len(k.hits), len(k.places), k.atStart, k.ends, k.killed, k.crowd.died-k.killed, k.descriptors, mib(k.private))
	logCounts(k.t, k.crowd.counts)
	require.Less(k.t, k.descriptors, descriptors)
	if !failpoint.Enabled { // the race detector takes more
		require.Less(k.t, k.private, int64(256<<20))
	}
}
