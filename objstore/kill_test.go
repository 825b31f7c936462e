package objstore

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/internal/goldentest"
	"github.com/ringcache/ringcache/internal/shmfile"
	"github.com/ringcache/ringcache/shmstore"
)

var (
	killCount = flag.Int("kills", 120, "TestKillMatrix kills at least so many processes")
	killSeed  = flag.Uint64("kills.seed", 0, "seed of TestKillMatrix; 0 makes one up")
)

// Every failpoint of the library, by whom TestKillMatrix kills there. A place in
// parentheses is none: the killed process is anywhere, or the test itself knows
// where it is.
var (
	writerPlaces = []string{
		"pool.alloc", "pool.allocated", "reserve.copy", "reserve.copy.meta", "reserve.copied",
		"commit", "pool.publish", "sidecar.put.begin", "sidecar.put.half", "sidecar.put.summed", "sidecar.put.end", "pool.published", "committed",
		"sidecar.use.begin", "sidecar.use.end",
		"pool.evict.killed", "sidecar.drop.begin", "sidecar.drop.end", "pool.drop",
		"pool.clear.begin", "pool.clear.one", "pool.clear.end",
		"sidecar.state.begin", "sidecar.state.half", "sidecar.state.end",
		"adopt.begin", "adopt.verified", "adopt.dropping", "adopt.state", "adopt.end",
		anywhere,
	}
	createPlaces = []string{"sidecar.link", "segment.link", "segment.linked", "segment.unlinked"}
	slotPlaces   = []string{"sidecar.slot.locked", "sidecar.slot.marked", "sidecar.slot.cleared", "sidecar.slot.unmarked"}
	readerPlaces = []string{"reader.held", "reader.got", readerLocked, readerCounted, readerViews}
)

const (
	anywhere      = "(anywhere)"
	readerLocked  = "(reader has the lock)"
	readerCounted = "(reader has counted)"
	readerViews   = "(reader looks)"
)

// killOrder is the variable that names what a child process is.
type killOrder struct {
	Role    string // writer, random, creator, worker, reader or slot
	Name    string // of the segment
	Seed    uint64
	Place   string // where it ends itself
	Nth     int    // and at which time it comes there
	Ops     int    // after which it ends without; 0 is never
	Rereads bool
	Handle  string
}

const killEnv = "RINGCACHE_KILL_CHILD"

// TestMain lets the test binary be the processes that are killed.
func TestMain(m *testing.M) {
	if s := os.Getenv(killEnv); s != "" {
		var o killOrder
		if err := json.Unmarshal([]byte(s), &o); err != nil {
			panic(err)
		}
		killChild(o)
		os.Exit(0)
	}
	os.Exit(goldentest.ReadOnlyTable(m).Run())
}

// TestKillMatrix kills writers at every failpoint and readers wherever they have
// something to lose, and looks each time whether what is left is whole: that the
// segment can be adopted, nothing is half there, nothing is lost that must not
// be, and workers read on.
func TestKillMatrix(t *testing.T) {
	failpoint.Need(t)
	seed := *killSeed
	for seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-kills.seed %d", seed)
	places := slices.Concat(writerPlaces, createPlaces, slotPlaces, readerPlaces)
	require.Equal(t, failpoints(places), listedFailpoints(), "the lists of this test name every failpoint")
	hits := hitsWithoutKills(t, seed)
	require.Equal(t, failpoints(places), slices.Sorted(maps.Keys(hits)), "without kills every failpoint is reached")

	each := (*killCount + len(places) - 1) / len(places)
	report := &killReport{rows: map[string]*killRow{}}
	t.Run("kill", func(t *testing.T) {
		todo := slices.Repeat(writerPlaces, each)
		rng := rand.New(rand.NewPCG(seed, 0))
		rng.Shuffle(len(todo), func(i, j int) { todo[i], todo[j] = todo[j], todo[i] })
		for i, rereads := range []bool{true, false} {
			t.Run(fmt.Sprintf("writers, rereads %v", rereads), func(t *testing.T) {
				t.Parallel()
				killWriters(t, report, seed+uint64(i), rereads, todo[i*len(todo)/2:(i+1)*len(todo)/2], hits)
			})
		}
		t.Run("creators", func(t *testing.T) {
			t.Parallel()
			killCreators(t, report, seed, each)
		})
		t.Run("readers", func(t *testing.T) {
			t.Parallel()
			killReaders(t, report, each)
		})
		t.Run("slots", func(t *testing.T) {
			t.Parallel()
			killSlots(t, report, each)
		})
	})
	if t.Failed() {
		return
	}
	sum := report.log(t, places)
	require.GreaterOrEqual(t, sum.kills, *killCount)
	for _, p := range places {
		require.NotNil(t, report.rows[p], "nobody was killed at %s", p)
	}
}

// failpoints are the places that have a failpoint, sorted.
func failpoints(places []string) []string {
	return slices.Sorted(slices.Values(slices.DeleteFunc(slices.Clone(places), func(p string) bool { return p[0] == '(' })))
}

// listedFailpoints are those of the list, which internal/failpoint compares with the source, without those of
// packages above.
func listedFailpoints() []string {
	var names []string
	for _, p := range failpoint.Points {
		room, _, _ := strings.Cut(p.Name, ".")
		if !slices.Contains([]string{"tier", "disk", "folder", "daemon"}, room) {
			names = append(names, p.Name)
		}
	}
	slices.Sort(names)
	return names
}

// hitsWithoutKills counts how often children that nobody kills come to each
// failpoint.
func hitsWithoutKills(t *testing.T, seed uint64) map[string]int {
	t.Helper()
	hits := map[string]int{}
	for _, role := range []string{"writer", "creator", "slot"} {
		name := killName(t, role)
		var handle string
		if role != "creator" {
			w, err := pool.create(killOptions(name, true))
			require.NoError(t, err)
			handle = killUnleased(t, w, "k", 1).String()
			require.NoError(t, w.Detach())
		}
		p := startChild(t, killOrder{Role: role, Name: name, Seed: seed, Ops: 600, Rereads: true, Handle: handle})
		require.NoError(t, p.In.Close())
		for p.Out.Scan() {
			var place string
			var n int
			line := p.Out.Text()
			require.NotEqual(t, "E", line[:1], line)
			if _, err := fmt.Sscanf(line, "H %s %d", &place, &n); err == nil {
				hits[place] += n
			}
		}
		require.NoError(t, p.Wait())
		if role != "creator" {
			w, _, err := adoptPool(killOptions(name, true))
			require.NoError(t, err)
			require.NoError(t, w.Close())
		}
		requireNoFiles(t, name)
	}
	return hits
}

// killName returns the name of a segment that no one else has, and removes what
// a failing test leaves of it.
func killName(t *testing.T, role string) string {
	t.Helper()
	name := fmt.Sprintf("ringcache-test-kill-%d-%s-%08x", os.Getpid(), role, rand.Uint32())
	t.Cleanup(func() {
		for _, f := range filesOf(t, name) {
			_ = os.Remove(f)
		}
	})
	return name
}

func filesOf(t *testing.T, name string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(shmfile.DefaultDir, name+"*"))
	require.NoError(t, err)
	return files
}

func requireNoFiles(t *testing.T, name string) {
	t.Helper()
	require.Empty(t, filesOf(t, name), "files are left")
}

// killReport is what became of the killed.
type killReport struct {
	mu   sync.Mutex
	rows map[string]*killRow
}

type killRow struct {
	kills int
	shmstore.Adoption
	adopted bool
}

func (r *killReport) at(place string, f func(*killRow)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rows[place] == nil {
		r.rows[place] = &killRow{}
	}
	f(r.rows[place])
}

func (r *killReport) killed(place string) { r.at(place, func(w *killRow) { w.kills++ }) }

// adopted adds up what was found by whoever adopted after a kill.
func (r *killReport) adopted(place string, a shmstore.Adoption) {
	r.at(place, func(w *killRow) {
		w.adopted = true
		w.Kept += a.Kept
		w.Dropped += a.Dropped
		w.InUse += a.InUse
	})
}

func (r *killReport) log(t *testing.T, places []string) (sum killRow) {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "\n%-24s %7s %9s %9s %9s\n", "place", "kills", "kept", "dropped", "in use")
	for _, p := range places {
		w := cmp.Or(r.rows[p], &killRow{})
		sum.kills += w.kills
		sum.Kept += w.Kept
		sum.Dropped += w.Dropped
		sum.InUse += w.InUse
		if w.adopted {
			fmt.Fprintf(&b, "%-24s %7d %9d %9d %9d\n", p, w.kills, w.Kept, w.Dropped, w.InUse)
		} else { // nobody had to adopt anything
			fmt.Fprintf(&b, "%-24s %7d %9s %9s %9s\n", p, w.kills, "-", "-", "-")
		}
	}
	fmt.Fprintf(&b, "%-24s %7d %9d %9d %9d\n", "sum", sum.kills, sum.Kept, sum.Dropped, sum.InUse)
	t.Log(b.String())
	return sum
}
