//go:build linux

package daemontest

import (
	"context"
	"flag"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon"
	"github.com/ringcache/ringcache/daemon/client"
	"github.com/ringcache/ringcache/daemon/wire"
)

var (
	lieCount = flag.Int("lies", 5000, "TestLies sends so many lying requests")
	lieSeed  = flag.Uint64("lies.seed", 0, "seed of TestLies; 0 makes one up")
)

const (
	liarProcesses = 2
	// lieMemory is what the daemon may take for itself: its connections can fill their buffers for requests,
	// which are 128 MiB here, and those for replies.
	lieMemory = 512 << 20
)

// TestLies lets processes lie to a daemon. Honest clients beside them see right answers and keep what they
// have, and what the daemon takes is bounded, and is as before when the liars are gone.
func TestLies(t *testing.T) {
	seed := seedOf(t, "lies.seed", *lieSeed)
	d := daemonRole{Dir: folder(t), Size: 64 << 20, Grace: patience, Limits: daemon.Limits{MaxConnections: 128, MaxSessions: 128, MaxLeases: 512, MaxHeld: 16 << 20}}
	p := d.start(t, "")
	require.True(t, p.wait("ready"))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()

	keeper := newKeeper(t, &d)
	load := role{Client: &clientRole{Socket: d.socket(), Dir: d.Dir, Space: "honest", Objects: killObjects, Sessions: 3, Seed: seed}}
	var liars []role
	for i := range uint64(liarProcesses) {
		liars = append(liars, role{Liar: &liarRole{LieOptions{
			Socket: d.socket(), Victim: keeper.c.Session(), Requests: *lieCount / liarProcesses, Liars: 6, Seed: seed + i,
		}}})
	}
	looks, steps, slowest := 0, 0, time.Duration(0)
	look := func() {
		begin := time.Now()
		keeper.look(ctx)
		slowest = max(slowest, time.Since(begin))
		looks++
	}
	r := p.lieTo(load, liars, look, func(crowd *crowd) {
		crowd.end()
		steps = len(crowd.steps)
		for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) { // all of theirs ends with them
			reply, err := keeper.c.Stat(ctx, wire.Request{List: true})
			require.NoError(t, err)
			if reply.State.Sessions == 1 && reply.State.Leases == 1 && len(reply.Leases) == 1 && reply.State.Fetches == 0 && !reply.State.Clearing {
				break
			}
			require.True(t, time.Now().Before(end), "they have left %+v, %d leases", reply.State, len(reply.Leases))
		}
		keeper.look(ctx)
	})
	t.Logf("beside them %d steps of honest sessions and %d looks at %d objects, the slowest %v", steps, looks, kept, slowest)
	for _, r := range r.during.Refused {
		t.Logf("%12d refused: %s", r.Count, r.Kind)
	}
	require.GreaterOrEqual(t, r.lies, *lieCount)
	require.Less(t, r.most, int64(lieMemory))
	require.Less(t, r.after.Heap, r.before.Heap+32<<20)
	require.Positive(t, steps)
	require.NoError(t, keeper.c.Release(ctx, wire.Request{Leases: []string{keeperLease}}))
	p.end()
}

func mib[T int64 | uint64](n T) float64 { return float64(n) / (1 << 20) }

const (
	kept        = 200
	keeperLease = "kept"
)

// keeper has objects, and looks at them again and again.
type keeper struct {
	t     *testing.T
	c     *client.Client
	m     *client.Mapping
	items []wire.Item
	turn  int
}

func newKeeper(t *testing.T, d *daemonRole) *keeper {
	k := &keeper{t: t}
	ctx := t.Context()
	var err error
	k.c, err = client.Dial(ctx, client.Options{Socket: d.socket(), Dir: d.Dir, Name: "keeper"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, k.c.Close()) })
	k.m, err = k.c.Map(ctx)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, k.m.Close()) })
	var numbers []int
	var objects []wire.Object
	for n := range kept {
		numbers, objects = append(numbers, n), append(objects, Object(n))
	}
	reserved, err := k.c.Reserve(ctx, wire.Request{Lease: keeperLease, Space: "kept", Objects: objects, Seconds: 3600})
	require.NoError(t, err)
	for n, v := range reserved {
		b, err := k.m.Bytes(v)
		require.NoError(t, err)
		Fill(b, "kept", n)
	}
	_, err = k.c.Commit(ctx, wire.Request{Lease: keeperLease, Space: "kept", Names: namesOf(numbers), Keep: true, Seconds: 3600})
	require.NoError(t, err)
	k.items, err = k.c.Pin(ctx, wire.Request{Lease: keeperLease, Space: "kept", Names: namesOf(numbers), Seconds: 3600})
	require.NoError(t, err)
	k.look(ctx)
	return k
}

// look asks for some of the objects again, and for where all are, and reads them.
func (k *keeper) look(ctx context.Context) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	k.turn++
	first := k.turn * 7 % (kept - 10)
	var numbers []int
	for n := first; n < first+10; n++ {
		numbers = append(numbers, n)
	}
	items, err := k.c.Pin(ctx, wire.Request{Lease: keeperLease, Space: "kept", Names: namesOf(numbers), Seconds: 3600})
	require.NoError(k.t, err)
	for i, n := range numbers {
		require.NoError(k.t, wrong(k.m, items[i], "kept", n))
		require.Equal(k.t, k.items[n], items[i], "object %d stays", n)
	}
	if k.turn%20 != 1 {
		return
	}
	all, err := k.c.Get(ctx, wire.Request{Lease: keeperLease, Space: "kept"})
	require.NoError(k.t, err)
	require.Len(k.t, all, kept)
	for n, v := range k.items {
		require.NoError(k.t, wrong(k.m, v, "kept", n))
	}
}
