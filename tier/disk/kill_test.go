package disk

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/tier"
)

var (
	killCount = flag.Int("kills", 44, "TestKills kills at least so many processes")
	killSeed  = flag.Uint64("kills.seed", 0, "seed of TestKills; 0 makes one up")
)

const killVariable = "RINGCACHE_DISK_KILL_CHILD"

// killOrder is what a child is told.
type killOrder struct {
	Dir      string
	Seed     uint64
	Capacity int64
	Place    string // where it ends itself; empty is nowhere
	Nth      int    // and at which time it comes there
	Ops      int
}

const (
	killNames   = 60
	killLargest = 600 << 10
)

// killObject is the object of a number: in every process the same. Some have parents.
func killObject(i int) (tier.Object, []byte) {
	sizes := []int{0, 1, 300, 4096, 70_000, 200_000, killLargest}
	name := fmt.Sprint("object ", i)
	o := objectOf(name, sizes[i%len(sizes)])
	o.Tenant, o.Note = "tenant", []byte(name)
	if i%3 != 0 {
		o.Parent = fmt.Sprint("object ", i-1)
	}
	return o, content(name, int(o.Size))
}

// killChild puts, gets, deletes and damages at random, and prints what it was told is done:
// "P 7" before a put and "p 7" after it, "D 7" and "d 7" for a delete, and a line with "!" for what must not
// be.
func killChild(s string) {
	var o killOrder
	if err := json.Unmarshal([]byte(s), &o); err != nil {
		panic(err)
	}
	var mu sync.Mutex
	hits := map[string]int{}
	failpoint.Set(func(name string) {
		mu.Lock()
		defer mu.Unlock()
		if hits[name]++; name == o.Place && hits[name] == o.Nth {
			failpoint.Die()
		}
	})
	say := func(format string, args ...any) {
		if _, err := fmt.Fprintf(os.Stdout, format+"\n", args...); err != nil {
			panic(err)
		}
	}
	l, err := Open(o.Dir, Options{Capacity: o.Capacity, KeepDamaged: 1 << 20})
	if err != nil {
		say("! %v", err)
		return
	}
	rng := rand.New(rand.NewPCG(o.Seed, 2))
	ctx := context.Background()
	for range o.Ops {
		var numbers []int
		for range 1 + rng.IntN(4) {
			numbers = append(numbers, rng.IntN(killNames))
		}
		switch rng.IntN(8) {
		case 0, 1, 2, 3:
			var puts []tier.Put
			for _, i := range numbers {
				object, b := killObject(i)
				p := tier.Put{Object: object, Bytes: b}
				if i%2 == 0 {
					p.Bytes, p.From = nil, bytes.NewReader(b)
				}
				puts = append(puts, p)
				say("P %d", i)
			}
			l.Put(ctx, puts)
			for j, i := range numbers {
				if puts[j].Err == nil {
					say("p %d", i)
				} else if !errors.Is(puts[j].Err, tier.ErrFull) {
					say("! put: %v", puts[j].Err)
				}
			}
		case 4, 5:
			for _, i := range numbers {
				object, b := killObject(i)
				gets := []tier.Get{{Key: object.Key}}
				l.Get(ctx, gets)
				if gets[0].Err == nil && !bytes.Equal(b, gets[0].Bytes) {
					say("! garbage of %d", i)
				} else if gets[0].Err != nil && !errors.Is(gets[0].Err, tier.ErrNotFound) {
					say("! get: %v", gets[0].Err)
				}
			}
		case 6:
			object, _ := killObject(numbers[0])
			say("D %d", numbers[0])
			if err := l.Delete(ctx, []tier.Key{object.Key})[0]; err == nil || errors.Is(err, tier.ErrNotFound) {
				say("d %d", numbers[0])
			} else {
				say("! delete: %v", err)
			}
		case 7: // a file is damaged, and found
			object, _ := killObject(numbers[0])
			p, _ := Native{}.Path(object.Key)
			f, err := os.OpenFile(filepath.Join(o.Dir, p), os.O_RDWR, 0)
			if err != nil {
				continue
			}
			say("D %d", numbers[0])
			_, _ = f.WriteAt([]byte("damaged"), 3)
			_ = f.Close()
			gets := []tier.Get{{Key: object.Key}}
			l.Get(ctx, gets)
			if !errors.Is(gets[0].Err, tier.ErrNotFound) { // the search may have found it before
				say("! damage of %d: %v", numbers[0], gets[0].Err)
			}
			say("d %d", numbers[0])
		}
	}
	if err := l.Close(); err != nil {
		say("! close: %v", err)
	}
	for _, name := range slices.Sorted(maps.Keys(hits)) {
		say("H %s %d", name, hits[name])
	}
}

// killed is one root, in which one child after the other is killed.
type killed struct {
	t        *testing.T
	dir      string
	capacity int64
	// state is what was acknowledged of each object: 'p', 'd', or '?' while something was going on.
	state [killNames]byte
	lost  int // objects that went for room
	kept  int
}

// run starts a child, and returns how often it came to each place if it was not killed.
func (k *killed) run(o killOrder) (hits map[string]int) {
	t := k.t
	o.Dir, o.Capacity = k.dir, k.capacity
	exe, err := os.Executable()
	require.NoError(t, err)
	order, err := json.Marshal(o)
	require.NoError(t, err)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), killVariable+"="+string(order))
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	require.NoError(t, cmd.Start())
	hits = map[string]int{}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		line := lines.Text()
		var i, n int
		var place string
		switch line[0] {
		case '!':
			t.Errorf("%+v: %s", o, line)
		case 'H':
			_, err = fmt.Sscanf(line, "H %s %d", &place, &n)
			hits[place] = n
		case 'P':
			if _, err = fmt.Sscanf(line[2:], "%d", &i); k.state[i] != 'p' {
				k.state[i] = '?'
			}
		case 'D':
			_, err = fmt.Sscanf(line[2:], "%d", &i)
			k.state[i] = '?'
		default:
			_, err = fmt.Sscanf(line[2:], "%d", &i)
			k.state[i] = line[0]
		}
		require.NoError(t, err, line)
	}
	_, _ = io.Copy(io.Discard, out)
	err = cmd.Wait()
	if o.Place == "" || len(hits) > 0 {
		require.NoError(t, err, stderr.String())
		return hits
	}
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, -1, exit.ExitCode(), "killed: %s", stderr.String())
	return nil
}

// verify opens the root after a kill: everything acknowledged is there, nothing is torn, and nothing
// temporary is left.
func (k *killed) verify(o killOrder) {
	t := k.t
	l, err := Open(k.dir, Options{Capacity: k.capacity})
	require.NoError(t, err, "%+v", o)
	defer closeLevel(t, l)
	_, temporary, aside := files(t, k.dir)
	require.Empty(t, temporary, "%+v", o)
	require.Empty(t, aside, "%+v", o)
	for i := range k.state {
		object, b := killObject(i)
		gets := []tier.Get{{Key: object.Key}}
		l.Get(t.Context(), gets)
		switch err := gets[0].Err; {
		case err == nil:
			require.NotEqual(t, byte('d'), k.state[i], "%+v: object %d was deleted", o, i)
			require.True(t, bytes.Equal(b, gets[0].Bytes), "%+v: object %d", o, i)
			require.Equal(t, object.Note, gets[0].Object.Note)
			k.state[i] = 'p'
			k.kept++
		case errors.Is(err, tier.ErrCorrupt):
			require.Equal(t, byte('?'), k.state[i], "%+v: object %d is torn", o, i) // the child has damaged it
			k.state[i] = 'd'
		default:
			require.ErrorIs(t, err, tier.ErrNotFound)
			if k.state[i] == 'p' {
				require.NotZero(t, k.capacity, "%+v: object %d is lost", o, i)
				k.lost++
			}
			k.state[i] = 'd'
		}
	}
	require.NoError(t, l.WaitIndex(t.Context()))
	u := l.Usage()
	if k.capacity > 0 {
		require.LessOrEqual(t, u.Bytes, k.capacity)
	}
	names, _, _ := files(t, k.dir)
	require.Len(t, names, int(u.Objects))
}

// TestKills kills processes at every failpoint of this package, while they put, get, delete, evict and find
// damage.
func TestKills(t *testing.T) {
	failpoint.Need(t)
	seed := *killSeed
	for seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-kills.seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 3))
	var points []string
	for _, p := range failpoint.Points {
		if strings.HasPrefix(p.Name, "disk.") {
			points = append(points, p.Name)
		}
	}
	const ops = 80
	roots := []*killed{{t: t, dir: t.TempDir()}, {t: t, dir: t.TempDir(), capacity: 2 << 20}}
	// A child that is not killed comes to every place, if a dead one has left something.
	hits := map[string]int{}
	for _, k := range roots {
		k.state = [killNames]byte(bytes.Repeat([]byte{'d'}, killNames))
		k.run(killOrder{Seed: rng.Uint64(), Place: "disk.temp.block", Nth: 1, Ops: ops})
		for p, n := range k.run(killOrder{Seed: rng.Uint64(), Ops: ops}) {
			hits[p] += n
		}
		k.verify(killOrder{})
	}
	require.Equal(t, slices.Sorted(slices.Values(points)), slices.Sorted(maps.Keys(hits)),
		"every failpoint is reached")

	rows := map[string]int{}
	kills := 0
	for turn := 0; kills < *killCount || len(rows) < len(points); turn++ {
		point := points[turn%len(points)]
		k := roots[rng.IntN(len(roots))]
		if point == "disk.evict" || point == "disk.removed" {
			k = roots[1]
		}
		if point == "disk.swept" { // somebody has to leave something
			k.run(killOrder{Seed: rng.Uint64(), Place: "disk.temp.written", Nth: 1 + rng.IntN(9), Ops: ops})
			kills++
		}
		o := killOrder{Seed: rng.Uint64(), Place: point, Nth: 1 + rng.IntN(max(1, hits[point]/2)), Ops: ops}
		if point == "disk.swept" || strings.HasPrefix(point, "disk.lock") {
			o.Nth = 1
		}
		if k.run(o) == nil {
			kills++
			rows[point]++
		}
		k.verify(o)
		require.Less(t, turn, 20**killCount+1000, "children come to no place any more: %v", rows)
	}
	for _, p := range points {
		t.Logf("%-20s %d kills", p, rows[p])
	}
	sum := roots[0].kept + roots[1].kept
	t.Logf("%d kills, %d objects found whole, none torn, none lost but %d for room, no temporary file left", kills,
		sum, roots[1].lost)
}
