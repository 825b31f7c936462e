//go:build linux

package daemontest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/client"
	"github.com/ringcache/ringcache/daemon/wire"
)

var (
	killCount = flag.Int("kills", 24, "TestKills kills so many daemons")
	killSeed  = flag.Uint64("kills.seed", 0, "seed of TestKills; 0 makes one up")
)

// TestKills kills daemons under load, at any moment and at every failpoint, and clients, too. No client ever
// sees a wrong byte or loses what it was told is pinned; when all clients are gone nothing is left of them; and
// what was committed is there.
func TestKills(t *testing.T) {
	killers := []*killer{
		{name: "memory", daemon: daemonRole{Size: 64 << 20, Grace: patience}, share: 2},
		{name: "disk below a small memory", daemon: daemonRole{Size: 6 << 20, Grace: patience, Disk: true}, share: 2, mayFull: true},
		{name: "hardly any grace", daemon: daemonRole{Size: 64 << 20, Grace: 10 * time.Millisecond}, share: 1, mayLapse: true},
	}
	eachKiller(t, *killCount, seedOf(t, "kills.seed", *killSeed), killers, func(k *killer, kills int) { (&killing{killer: k}).run(kills) })
	hits := map[string]int{} // of failpoints
	for _, k := range killers {
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

// killing looks for what has to be there, in one space of objects after the other.
type killing struct {
	*killer
	space  string
	spaces int
	client *client.Client // of this process
	m      *client.Mapping

	checks, found, full, orphans int
}

func (k *killing) run(kills int) {
	k.people = k.addPeople
	k.nextSpace()
	for k.kills < kills {
		k.turn(func(p *process) int {
			if k.rng.IntN(2) == 0 {
				k.check(p)
			}
			if k.rng.IntN(10) == 0 {
				return 10 * k.rng.IntN(400)
			}
			return k.rng.IntN(400)
		})
		if k.kills >= perSpace*k.spaces {
			k.nextSpace()
		}
	}
	k.end()
	k.t.Logf("%d times all that has to be there was looked for, %d objects found, %d without room, %d without their parents", k.checks, k.found, k.full, k.orphans)
	k.report(150)
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

func (k *killing) addPeople() {
	for len(k.crowd.clients()) < killProcesses {
		k.crowd.add(role{Client: &clientRole{
			Socket: k.daemon.socket(), Dir: k.daemon.Dir, Space: k.space, Objects: killObjects, Sessions: killSessions, Seed: k.rng.Uint64(), MayFull: k.mayFull, MayLapse: k.mayLapse, DieIn: 3000,
		}})
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

// check looks for all that has to be there, and clears what is not needed any more. In the space before this one
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
	require.Empty(k.t, r.Gone, "lost objects of %s, after %d kills", k.space, k.kills)
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
