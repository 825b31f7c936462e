//go:build linux

package memory

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/tier"
)

var (
	killCount = flag.Int("kills", 40, "TestKills kills so many processes")
	killSeed  = flag.Uint64("kills.seed", 0, "seed of TestKills; 0 makes one up")
)

const (
	killEnv  = "RINGCACHE_TIER_MEMORY_CHILD"
	anywhere = "(anywhere)"
	perChain = 25 // processes that have one segment after the other
)

// killOrder is what a child process does.
type killOrder struct {
	Dir   string
	Seed  uint64
	Ops   int
	Count bool // count failpoints
}

func killOptions(dir string) Options {
	return Options{Name: "level", Dir: dir, Size: 128 << 10, MaxObjects: 30, MaxLeases: 8, MaxPins: 60}
}

// killStep is a line of a child: one when it begins an operation, and the same with Done when that
// was answered.
type killStep struct {
	Op      string
	Lease   string
	Names   []string
	Until   int64
	Done    bool
	OK      []bool
	Offsets []uint64
	Hits    map[string]int
	Err     string
}

func TestMain(m *testing.M) {
	if s := os.Getenv(killEnv); s != "" {
		var o killOrder
		if err := json.Unmarshal([]byte(s), &o); err != nil {
			panic(err)
		}
		(&killChild{order: o, rng: rand.New(rand.NewPCG(o.Seed, 1))}).run()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// killChild works with a level until it is killed.
type killChild struct {
	order killOrder
	rng   *rand.Rand
	l     *Level
}

func say(s killStep) {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	_, _ = os.Stdout.Write(append(b, '\n'))
}

func (c *killChild) run() {
	var mu sync.Mutex
	hits := map[string]int{}
	if c.order.Count {
		failpoint.Set(func(name string) {
			mu.Lock()
			defer mu.Unlock()
			hits[name]++
		})
	}
	var err error
	if c.l, err = Open(killOptions(c.order.Dir)); err != nil {
		say(killStep{Op: "open", Err: err.Error()})
		return
	}
	say(killStep{Op: "open", Done: true})
	// Others use the level meanwhile, without leases.
	stop := make(chan struct{})
	var others sync.WaitGroup
	others.Go(func() {
		other := &killChild{order: c.order, rng: rand.New(rand.NewPCG(c.order.Seed, 2)), l: c.l}
		for {
			select {
			case <-stop:
				return
			default:
				other.use()
			}
		}
	})
	for range c.order.Ops {
		c.step()
	}
	close(stop)
	others.Wait()
	if c.rng.IntN(2) == 0 {
		if err := c.l.Close(); err != nil {
			say(killStep{Op: "close", Err: err.Error()})
		}
	}
	say(killStep{Op: "end", Done: true, Hits: hits})
}

const killNames = 40

// killSize is the size of the object of a name.
func killSize(name string) int {
	n := 0
	_, _ = fmt.Sscan(name[1:], &n)
	return n * n * 6
}

// killObject describes the object of a name: some are in chains.
func killObject(name string) tier.Object {
	o := object(name, "", killSize(name))
	n := 0
	_, _ = fmt.Sscan(name[1:], &n)
	if n%5 != 0 {
		o.Parent = fmt.Sprint("n", n-1)
	}
	if n%3 == 0 {
		o.Tenant, o.Note = "tenant", []byte("note of "+name)
	}
	return o
}

func (c *killChild) names() []string {
	names := make([]string, 1+c.rng.IntN(3))
	for i := range names {
		names[i] = fmt.Sprint("n", c.rng.IntN(killNames))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// use does something without a lease.
func (c *killChild) use() {
	names := c.names()
	switch c.rng.IntN(4) {
	case 0, 1:
		for _, name := range names {
			_ = put(c.l, killObject(name))
		}
	case 2:
		c.l.Delete(context.Background(), keys(names...))
	default:
		for _, name := range names {
			if b, err := get(c.l, name); err == nil && string(b) != string(content(name, killSize(name))) {
				panic("wrong bytes of " + name)
			}
		}
	}
}

func (c *killChild) step() {
	s := killStep{Lease: fmt.Sprint("lease", c.rng.IntN(5)), Names: c.names()}
	ctx := context.Background()
	var x tier.Lease
	if slices.ContainsFunc(c.l.Leases(), func(st tier.LeaseState) bool { return st.ID == s.Lease }) {
		x, _ = c.l.Lease(ctx, tier.LeaseOptions{ID: s.Lease, Owner: "o", Until: time.Unix(1, 0)})
	}
	do := func(op string, f func()) {
		s.Op = op
		say(s)
		f()
		s.Done = true
		say(s)
	}
	errs := func(all []error) {
		for _, err := range all {
			s.OK = append(s.OK, err == nil)
		}
	}
	placed := func(all []tier.Placed) {
		for _, p := range all {
			s.OK = append(s.OK, p.Err == nil)
			s.Offsets = append(s.Offsets, p.Offset)
		}
	}
	switch n := c.rng.IntN(100); {
	case x == nil:
		s.Until = time.Now().Add(time.Hour).UnixNano()
		do("lease", func() {
			_, err := c.l.Lease(ctx, tier.LeaseOptions{ID: s.Lease, Owner: "o", Until: time.Unix(0, s.Until)})
			errs([]error{err})
		})
	case n < 25:
		do("pin", func() { placed(x.Pin(keys(s.Names...))) })
	case n < 40:
		do("unpin", func() { x.Unpin(keys(s.Names...)) })
	case n < 55:
		var all []tier.Object
		for _, name := range s.Names {
			all = append(all, killObject(name))
		}
		do("reserve", func() { placed(x.Reserve(all)) })
	case n < 70:
		s.Names = nil
		for _, k := range x.State().Reserved {
			if c.rng.IntN(2) == 0 {
				s.Names = append(s.Names, k.Name)
			}
		}
		for _, name := range s.Names { // as a client does, by the offset
			size := killSize(name)
			at := offset(x.(*lease).find(key(name)).o.Handle(), int64(size))
			copy(c.l.seg.Bytes()[at:], content(name, size))
		}
		if n < 63 {
			do("commit", func() { errs(x.Commit(keys(s.Names...))) })
		} else {
			do("abort", func() { errs(x.Abort(keys(s.Names...))) })
		}
	case n < 73:
		do("release", func() { x.Release() })
	case n < 77:
		s.Until = time.Now().Add(2 * time.Hour).UnixNano()
		do("until", func() { errs([]error{x.SetUntil(time.Unix(0, s.Until))}) })
	default:
		do("use", c.use)
	}
}

// killModel is what a level answered.
type killModel struct {
	leases map[string]*killLease
	begun  *killStep // not answered
}

type killLease struct {
	until          int64
	pins, reserved map[string]uint64 // offsets by name
}

func (m *killModel) take(s killStep) {
	if !s.Done {
		m.begun = &s
		return
	}
	m.begun = nil
	x := m.leases[s.Lease]
	for i := range s.OK {
		if !s.OK[i] {
			continue
		}
		switch s.Op {
		case "lease":
			m.leases[s.Lease] = &killLease{s.Until, map[string]uint64{}, map[string]uint64{}}
		case "until":
			x.until = s.Until
		case "pin":
			x.pins[s.Names[i]] = s.Offsets[i]
		case "reserve":
			x.reserved[s.Names[i]] = s.Offsets[i]
		case "commit":
			x.pins[s.Names[i]] = x.reserved[s.Names[i]]
			delete(x.reserved, s.Names[i])
		case "abort":
			delete(x.reserved, s.Names[i])
		}
	}
	switch s.Op {
	case "unpin":
		for _, name := range s.Names {
			delete(x.pins, name)
		}
	case "release":
		delete(m.leases, s.Lease)
	}
}

// compare checks the leases of a level, and takes over what became of the operation that was under way.
func (m *killModel) compare(t *testing.T, l *Level) {
	t.Helper()
	b := m.begun
	if b == nil {
		b = &killStep{}
	}
	m.begun = nil
	for id := range l.leases {
		if m.leases[id] == nil {
			require.True(t, b.Op == "lease" && b.Lease == id, "lease %s came from nowhere", id)
			m.leases[id] = &killLease{b.Until, map[string]uint64{}, map[string]uint64{}}
		}
	}
	for id, want := range m.leases {
		x := l.leases[id]
		mine := func(ops ...string) bool { return b.Lease == id && slices.Contains(ops, b.Op) }
		if x == nil {
			require.True(t, mine("release"), "lease %s is gone, with %v", id, want)
			delete(m.leases, id)
			continue
		}
		require.True(t, x.fromRestart)
		if x.record.Until != want.until {
			require.True(t, mine("until"), "lease %s ends at another time", id)
			want.until = b.Until
			require.Equal(t, want.until, x.record.Until)
		}
		maybe := func(name string, ops ...string) bool { return mine(ops...) && slices.Contains(b.Names, name) }
		pins, reserved := map[string]uint64{}, map[string]uint64{}
		for k, it := range x.pinned {
			pins[k.Name] = offset(it.o.Handle(), it.object.Size)
		}
		for k, it := range x.reserved {
			require.False(t, it.lost)
			reserved[k.Name] = offset(it.o.Handle(), it.object.Size)
		}
		for name, at := range want.pins {
			if got, ok := pins[name]; ok {
				require.Equal(t, at, got, "%s has moved", name)
			} else {
				require.True(t, maybe(name, "unpin"), "lease %s lost its pin of %s, at %+v", id, name, b)
			}
		}
		for name, at := range want.reserved {
			got, ok := reserved[name]
			if !ok && maybe(name, "commit") {
				got, ok = pins[name]
			}
			if ok {
				require.Equal(t, at, got, "reservation %s has moved", name)
			} else {
				require.True(t, maybe(name, "abort"), "lease %s lost its reservation of %s, at %+v", id, name, b)
			}
		}
		for name := range pins {
			_, ok := want.pins[name]
			require.True(t, ok || maybe(name, "pin", "commit"), "lease %s has a pin of %s, at %+v", id, name, b)
		}
		for name := range reserved {
			_, ok := want.reserved[name]
			require.True(t, ok || maybe(name, "reserve"), "lease %s has a reservation of %s, at %+v", id, name, b)
		}
		want.pins, want.reserved = pins, reserved
	}
}

// TestKills kills processes at every failpoint, and looks each time what the next one finds: the bytes of every
// object, and every lease that was answered with what it was promised, where it was promised.
func TestKills(t *testing.T) {
	failpoint.Need(t)
	seed := *killSeed
	for seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-kills.seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	// Which failpoints a process comes to, and how often.
	dir := t.TempDir()
	hits := map[string]int{}
	for i := range uint64(2) {
		steps := runChild(t, killOrder{Dir: dir, Seed: seed + i, Ops: 600, Count: true}, "", 0)
		for place, n := range steps[len(steps)-1].Hits {
			hits[place] += n
		}
	}
	places := append(slices.Sorted(maps.Keys(hits)), anywhere)
	for _, p := range failpoint.Points {
		if strings.HasPrefix(p.Name, "tier.") {
			require.Contains(t, places, p.Name, "without kills every failpoint is reached")
		}
	}

	killed := map[string]int{}
	var m *killModel
	n, tries := 0, 0
	for ; n < *killCount; tries++ {
		require.Less(t, tries, 10**killCount+1000, "children are killed: %v", killed)
		if tries%perChain == 0 {
			dir, m = t.TempDir(), &killModel{leases: map[string]*killLease{}}
		}
		place := places[(tries+tries/len(places))%len(places)]
		if tries%perChain == 0 && rng.IntN(2) == 0 { // only now
			making := []string{"sidecar.link", "segment.link", "segment.linked", "tier.memory.created"}
			place = making[tries/perChain%len(making)]
		}
		order := killOrder{Dir: dir, Seed: rng.Uint64(), Ops: 400}
		kill := ""
		after := 0
		if place == anywhere {
			after = 1 + rng.IntN(800)
		} else {
			kill = fmt.Sprintf("%s:%d", place, 1+rng.IntN(max(1, hits[place]/4)))
		}
		steps := runChild(t, order, kill, after)
		last := killStep{}
		for _, s := range steps {
			require.Empty(t, s.Err)
			if s.Op != "open" && s.Op != "end" {
				m.take(s)
			}
			last = s
		}
		if last.Op != "end" {
			n++
			killed[place]++
		}
		lookAround(t, killOptions(dir), m, fmt.Sprintf("after %s (%d)", kill, after))
		if tries%perChain == perChain-1 {
			finish(t, killOptions(dir))
		}
	}
	if len(m.leases) > 0 {
		finish(t, killOptions(dir))
	}
	var missing []string
	for _, p := range places {
		if killed[p] == 0 {
			missing = append(missing, p)
		}
	}
	t.Logf("%d kills in %d processes at %d places; not at %v", n, tries, len(killed), missing)
	if *killCount >= 1000 {
		require.Empty(t, missing)
	}
}

// lookAround opens what a killed process left, and compares.
func lookAround(t *testing.T, o Options, m *killModel, why string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(o.Dir, o.Name)); err != nil {
		require.Empty(t, m.leases, why)
	}
	l, err := Open(o)
	require.NoError(t, err, why)
	defer func() { require.NoError(t, l.Close()) }()
	require.NoError(t, l.CheckStructure(), why)
	require.False(t, l.cautious(), "%s: a kill damages nothing", why)
	require.Zero(t, l.corrupt, why)
	m.compare(t, l)
	held := int64(0)
	for _, x := range l.leases {
		held += x.bytes
	}
	if held == 0 {
		require.Zero(t, l.Usage().Held, why)
	}
	for x, err := range l.List(context.Background(), "") {
		require.NoError(t, err)
		require.Equal(t, killObject(x.Name), x)
		requireContent(t, l, x.Name, killSize(x.Name))
	}
	require.NoError(t, l.CheckStructure(), why)
}

// finish ends all leases: nothing is left of them.
func finish(t *testing.T, o Options) {
	t.Helper()
	l, err := Open(o)
	require.NoError(t, err)
	for _, s := range l.Leases() {
		leaseOf(t, l, tier.LeaseOptions{ID: s.ID, Owner: s.Owner}).Release()
	}
	require.NoError(t, l.CheckStructure())
	require.Zero(t, l.Usage().Held)
	require.NoError(t, put(l, object("large", "", 100<<10)), "all room can be had")
	require.NoError(t, l.Remove())
	left, err := os.ReadDir(o.Dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

// runChild runs a child process until its end, or kills it after so many lines, and returns what it said.
func runChild(t *testing.T, o killOrder, kill string, after int) (steps []killStep) {
	t.Helper()
	b, err := json.Marshal(o)
	require.NoError(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), killEnv+"="+string(b), failpoint.KillVariable+"="+kill, "GORACE=atexit_sleep_ms=0")
	var errOut strings.Builder
	cmd.Stderr = &errOut
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var s killStep
		require.NoError(t, json.Unmarshal(lines.Bytes(), &s), lines.Text())
		steps = append(steps, s)
		if len(steps) == after {
			require.NoError(t, cmd.Process.Kill())
		}
	}
	err = cmd.Wait()
	if exit := (*exec.ExitError)(nil); err != nil {
		require.ErrorAs(t, err, &exit)
		require.Equal(t, -1, exit.ExitCode(), "the child failed: %v\n%s", err, errOut.String())
	}
	return steps
}
