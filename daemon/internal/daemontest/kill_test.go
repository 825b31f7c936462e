//go:build linux

package daemontest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/client"
	"github.com/ringcache/ringcache/daemon/wire"
	"github.com/ringcache/ringcache/internal/failpoint"
)

var (
	killCount = flag.Int("kills", 24, "TestKills kills so many daemons")
	killSeed  = flag.Uint64("kills.seed", 0, "seed of TestKills; 0 makes one up")
)

// TestKills kills daemons under load, at any moment and at every failpoint, and clients, too. No client ever
// sees a wrong byte or loses what it was promised; when all clients are gone nothing is left of them; and
// what was committed is there.
func TestKills(t *testing.T) {
	seed := *killSeed
	for seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-kills.seed %d", seed)
	hits := map[string]int{} // of failpoints
	for i, k := range []*killing{
		{name: "memory", daemon: daemonRole{Size: 64 << 20, Grace: patience}, share: 2},
		{name: "disk below a small memory", daemon: daemonRole{Size: 6 << 20, Grace: patience, Disk: true}, share: 2, mayFull: true},
		{name: "hardly any grace", daemon: daemonRole{Size: 64 << 20, Grace: 10 * time.Millisecond}, share: 1, mayLapse: true},
	} {
		t.Run(k.name, func(t *testing.T) {
			k.rng = rand.New(rand.NewPCG(seed, uint64(i)))
			k.run(t, (*killCount*k.share+4)/5)
		})
		for _, p := range k.places {
			hits[p] += k.hits[p]
		}
	}
	if *killCount < 50*len(hits) || t.Failed() {
		return
	}
	for p, n := range hits {
		if n == 0 {
			t.Errorf("no daemon was killed at %s", p)
		}
	}
}

const (
	killProcesses = 3
	killSessions  = 4
	killObjects   = 300 // in a space
	perSpace      = 20  // kills
)

// killing is the daemons over one segment, one after the other.
type killing struct {
	name              string
	daemon            daemonRole
	share             int // of five
	mayFull, mayLapse bool

	t      *testing.T
	rng    *rand.Rand
	crowd  *crowd
	space  string
	spaces int
	client *client.Client // of this process
	m      *client.Mapping

	places                                             []string
	hits                                               map[string]int // kills at a failpoint
	kills, atStart, ends, checks, found, full, orphans int
	killed                                             int // clients
	descriptors                                        int // the most
	private, shared                                    int64
}

func (k *killing) run(t *testing.T, kills int) {
	k.t, k.daemon.Dir, k.crowd, k.hits = t, folder(t), newCrowd(t), map[string]int{}
	for _, p := range failpoint.Points {
		if failpoint.Enabled && (strings.HasPrefix(p.Name, "daemon.") || strings.HasPrefix(p.Name, "tier.")) &&
			(k.mayLapse || p.Name != "daemon.abandoned") {
			k.places = append(k.places, p.Name)
		}
	}
	k.nextSpace()
	for k.kills < kills {
		k.people()
		k.turn()
		if bad := k.crowd.wrong(); len(bad) > 0 {
			t.Fatalf("after %d kills: %q", k.kills, bad)
		}
		if k.kills >= perSpace*k.spaces {
			k.nextSpace()
		}
	}
	k.end()
	t.Logf("%d kills, %d of them at %d of %d failpoints and %d before the daemon served, %d ends in peace; clients: %d killed, %d ended themselves; "+
		"%d times all that was promised was looked for, %d objects found, %d without room, %d without their parents; the most of a daemon: %d descriptors, %.1f MiB of its own",
		k.kills, total(k.hits), len(k.hits), len(k.places), k.atStart, k.ends, k.killed, k.crowd.died-k.killed, k.checks, k.found, k.full, k.orphans, k.descriptors, float64(k.private)/(1<<20))
	for _, what := range slices.Sorted(maps.Keys(k.crowd.counts)) {
		t.Logf("%12d %s", k.crowd.counts[what], what)
	}
}

func total(m map[string]int) (sum int) {
	for _, n := range m {
		sum += n
	}
	return sum
}

// nextSpace lets clients go on in another space.
func (k *killing) nextSpace() {
	k.spaces++
	k.crowd.ledger.Forget(k.space)
	k.space = fmt.Sprint("space-", k.spaces)
	for _, x := range k.crowd.clients() {
		_, _ = fmt.Fprintln(x.in, k.space)
	}
}

// people sees to it that there are clients.
func (k *killing) people() {
	for len(k.crowd.clients()) < killProcesses {
		k.crowd.add(role{Client: &clientRole{
			Socket: k.daemon.socket(), Dir: k.daemon.Dir, Space: k.space, Objects: killObjects, Sessions: killSessions, Seed: k.rng.Uint64(), MayFull: k.mayFull, MayLapse: k.mayLapse, DieIn: 3000,
		}})
	}
}

// turn is the life of one daemon.
func (k *killing) turn() {
	place := ""
	if len(k.places) > 0 && k.rng.IntN(2) == 0 {
		nth := 1
		if k.rng.IntN(2) == 0 {
			nth += k.rng.IntN(40)
		}
		place = fmt.Sprint(k.places[k.rng.IntN(len(k.places))], ":", nth)
	}
	if k.kills == 0 && failpoint.Enabled {
		place = "tier.memory.created:1" // there is no other time
	}
	p := k.daemon.start(k.t, place)
	if place == "" && k.rng.IntN(6) == 0 {
		if p.wait([]string{"memory", "levels", "store", "server"}[k.rng.IntN(4)]) {
			k.atStart++
		}
		k.kill(p, place)
		return
	}
	if !p.wait("ready") {
		k.atStart++
		k.kill(p, place)
		return
	}
	if k.rng.IntN(2) == 0 {
		k.check(p)
	}
	steps := k.rng.IntN(400)
	if k.rng.IntN(10) == 0 {
		steps *= 10
	}
	k.work(p, steps)
	if d, private, shared := takes(p.cmd.Process.Pid); d > 0 {
		k.descriptors, k.private, k.shared = max(k.descriptors, d), max(k.private, private), max(k.shared, shared)
	}
	death := strings.HasPrefix(place, "daemon.died:") // which only the death of a client brings about
	if death || k.rng.IntN(5) == 0 {
		if list := k.crowd.clients(); len(list) > 0 {
			k.killed++
			_ = list[k.rng.IntN(len(list))].cmd.Process.Kill()
		}
	}
	if death {
		k.work(p, 100)
	}
	if place == "" && k.rng.IntN(20) == 0 {
		k.ends++
		p.end()
		return
	}
	k.kill(p, place)
}

// kill ends a daemon, unless it has ended itself at a failpoint.
func (k *killing) kill(p *process, place string) {
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

// work waits until clients have done so many steps, or the daemon has ended.
func (k *killing) work(p *process, steps int) {
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

// dial makes the client of this process.
func (k *killing) dial(ctx context.Context) (err error) {
	if k.client == nil {
		if k.client, err = client.Dial(ctx, client.Options{Socket: k.daemon.socket(), Name: "ledger", Dir: k.daemon.Dir}); err != nil {
			k.client = nil
			return err
		}
		k.t.Cleanup(func() { _ = k.client.Close() })
	}
	if k.m == nil {
		if k.m, err = k.client.Map(ctx); err == nil {
			k.t.Cleanup(func() { require.NoError(k.t, k.m.Close()) })
		}
	}
	return err
}

// check looks for all that was promised, and clears what is not needed any more. In the space before this one
// clients may still be at work, which have not read the name of this one yet.
func (k *killing) check(p *process) {
	ctx, stop := context.WithTimeout(k.t.Context(), patience)
	defer stop()
	err := k.dial(ctx)
	for old := max(1, k.spaces-3); old < k.spaces-1 && err == nil; old++ {
		err = k.client.Clear(ctx, fmt.Sprint("space-", old))
	}
	var r Checked
	if err == nil {
		if r, err = k.crowd.ledger.Check(ctx, k.client, k.m, k.space); err == nil {
			k.checks++
		}
	}
	var bad *WrongError
	if err != nil && !errors.As(err, &bad) {
		select {
		case <-p.ended: // by a failpoint
			err = nil
		case <-time.After(patience):
		}
	}
	require.NoError(k.t, err, "after %d kills", k.kills)
	k.found += r.Found
	k.full += r.Full
	k.orphans += r.Orphans
	require.Empty(k.t, r.Gone, "promised objects of %s, after %d kills", k.space, k.kills)
	if !k.mayFull {
		require.Zero(k.t, r.Full, "there is plenty of room")
		require.Zero(k.t, r.Orphans, "nothing has left memory")
	}
}

// end kills all clients while no daemon is there: the next one ends what they had. Then others come, and are
// killed while it is there.
func (k *killing) end() {
	t := k.t
	k.crowd.killAll()
	p := k.daemon.start(t, "")
	require.True(t, p.wait("ready"))
	k.check(p)
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	nothing := func(p *wire.Reply) bool {
		return len(p.Leases) == 0 && p.State.Leases == 0 && p.State.Sessions == 1 && p.State.Backlog == 0 && p.State.Fetches == 0 && p.State.Levels[0].Held == 0
	}
	k.wait(ctx, "no lease, reservation or session of a client that is gone", nothing)
	k.people()
	k.work(p, 200)
	k.crowd.killAll()
	k.wait(ctx, "no lease, reservation or session of a client that was killed", nothing)
	k.check(p)
	require.Empty(t, k.crowd.wrong())
	require.NoError(t, k.client.Clear(ctx, ""))
	k.wait(ctx, "nothing is left", func(p *wire.Reply) bool {
		for _, l := range p.State.Levels {
			if l.Objects != 0 || l.Bytes != 0 {
				return false
			}
		}
		return !p.State.Clearing
	})
	p.end()
	require.Less(t, k.descriptors, 150)
	if !failpoint.Enabled { // the race detector takes more
		require.Less(t, k.private, int64(256<<20))
	}
}

// wait waits until the daemon describes itself so.
func (k *killing) wait(ctx context.Context, what string, is func(*wire.Reply) bool) {
	var last wire.Reply
	for {
		p, err := k.client.Stat(ctx, wire.Request{List: true})
		if err == nil {
			if last = *p; is(p) {
				return
			}
		}
		if ctx.Err() != nil {
			k.t.Fatalf("want %s: %+v, %+v, %v", what, last.State, last.Leases, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
