package folder

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/tier"
)

var (
	killCount = flag.Int("kills", 20, "TestKills kills so many processes")
	killSeed  = flag.Uint64("kills.seed", 0, "seed of TestKills; 0 makes one up")
)

const killVariable = "RINGCACHE_FOLDER_KILL_CHILD"

// killOrder is what a child is told.
type killOrder struct {
	Dir   string
	Seed  uint64
	Place string // where it ends itself; empty is nowhere
	Nth   int    // and at which time it comes there
}

// killNames are so many that most objects get old before they are put again.
const killNames = 400

// killOptions make every search evict, and all that is old goes. MinAge is long enough for a machine that is busy: the
// test looks at an object within that time, or not at all.
func killOptions(dir string) (string, Options) {
	return dir, Options{Capacity: 1 << 20, MinAge: 3 * time.Second, interval: 20 * time.Millisecond, lease: 500 * time.Millisecond,
		grace: 20 * time.Millisecond, tempAge: 5 * time.Second}
}

func TestMain(m *testing.M) {
	if s := os.Getenv(killVariable); s != "" {
		killChild(s)
		return
	}
	// Random histories list the whole folder often, which takes time: 15 of them, unless the command line has a number.
	if err := flag.Set("rapid.checks", "15"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// killChild puts, gets and deletes until it is killed. It prints "p 7" after a put of object 7, "D 7" before a delete, and
// a line with "!" for what must not be.
func killChild(s string) {
	var o killOrder
	if err := json.Unmarshal([]byte(s), &o); err != nil {
		panic(err)
	}
	if o.Place != "" {
		var mu sync.Mutex
		hits := 0
		failpoint.Set(func(name string) {
			mu.Lock()
			defer mu.Unlock()
			if name == o.Place {
				if hits++; hits == o.Nth {
					failpoint.Die()
				}
			}
		})
	}
	say := func(format string, args ...any) {
		if _, err := fmt.Fprintf(os.Stdout, format+"\n", args...); err != nil {
			os.Exit(1) // the test has ended
		}
	}
	ctx := context.Background()
	l, err := Open(ctx, first(killOptions(o.Dir)), second(killOptions(o.Dir)))
	if err != nil {
		say("! open: %v", err)
		return
	}
	rng := rand.New(rand.NewPCG(o.Seed, 2))
	for {
		i := rng.IntN(killNames)
		object, b := testObject(i)
		switch rng.IntN(8) {
		case 0, 1, 2, 3:
			puts := []tier.Put{{Object: object, Bytes: b}}
			if i%2 == 0 {
				puts[0].Bytes, puts[0].From = nil, bytes.NewReader(b)
			}
			l.Put(ctx, puts)
			if puts[0].Err != nil {
				say("! put: %v", puts[0].Err)
			}
			say("p %d", i)
		case 4, 5, 6:
			gets := []tier.Get{{Key: object.Key}}
			l.Get(ctx, gets)
			switch err := gets[0].Err; {
			case err == nil && !bytes.Equal(b, gets[0].Bytes):
				say("! garbage of %d", i)
			case errors.Is(err, tier.ErrCorrupt), err != nil && !errors.Is(err, tier.ErrNotFound):
				say("! get: %v", err)
			}
		case 7:
			if i%10 != 0 {
				continue
			}
			say("D %d", i)
			if err := l.Delete(ctx, []tier.Key{object.Key})[0]; err != nil && !errors.Is(err, tier.ErrNotFound) {
				say("! delete: %v", err)
			}
		}
	}
}

func first(dir string, _ Options) string { return dir }

func second(_ string, o Options) Options { return o }

// killed is one root, in which children are killed.
type killed struct {
	t   *testing.T
	dir string

	mu   sync.Mutex
	put  [killNames]time.Time // when a child said that it had put the object last; zero if it may have been deleted
	puts int
}

// start starts a child, which runs until kill, or kills itself.
func (k *killed) start(o killOrder) (kill func(), done <-chan struct{}) {
	t := k.t
	o.Dir = k.dir
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
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			k.said(o, lines.Text())
		}
		_, _ = io.Copy(io.Discard, out)
		if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != -1 {
			t.Errorf("%+v: the child has ended by itself: %v: %s", o, err, stderr.String())
		}
	}()
	return func() { _ = cmd.Process.Kill() }, ended
}

func (k *killed) said(o killOrder, line string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var i int
	switch {
	case strings.HasPrefix(line, "!"):
		k.t.Errorf("%+v: %s", o, line)
		return
	case len(line) < 3:
		return // it was killed in the midst of it
	}
	if _, err := fmt.Sscanf(line[2:], "%d", &i); err != nil || i >= killNames {
		return
	}
	if line[0] == 'p' && i%10 != 0 { // the others are deleted, too, by both at any time
		k.put[i] = time.Now()
		k.puts++
	}
}

// verify expects what was put lately, and nothing that is torn.
func (k *killed) verify(l *Level) (checked int) {
	t := k.t
	k.mu.Lock()
	put := k.put
	k.mu.Unlock()
	age := l.o.MinAge
	for i := range killNames {
		late := time.Since(put[i]) > age/2 // it may become old while the test looks
		if (put[i].IsZero() || late) && i%20 != 0 {
			continue
		}
		object, b := testObject(i)
		got, err := getOne(l, object.Key)
		switch {
		case err == nil:
			require.True(t, bytes.Equal(b, got), "object %d", i)
		case errors.Is(err, tier.ErrCorrupt):
			t.Fatalf("object %d is torn: %v", i, err)
		default:
			require.ErrorIs(t, err, tier.ErrNotFound)
			if put[i].IsZero() || late {
				continue
			}
			// A kill may leave it below .ringcache/leaving. The next evictor returns it.
			require.Eventually(t, func() bool {
				_, err := getOne(l, object.Key)
				return err == nil
			}, age/4, time.Millisecond, "object %d, which was put %v ago, is gone", i, time.Since(put[i]))
		}
		if !put[i].IsZero() && !late {
			checked++
		}
	}
	return checked
}

// TestKills kills processes that put, get, delete and evict in one folder, two at a time: nothing is torn, what was put
// lately is there, and the next evictor removes what the dead have left.
func TestKills(t *testing.T) {
	seed := *killSeed
	for seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-kills.seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 3))
	var points []string
	if failpoint.Enabled {
		for _, p := range failpoint.Points {
			if strings.HasPrefix(p.Name, "folder.") {
				points = append(points, p.Name)
			}
		}
	} else {
		t.Log("this build has no failpoints: processes are killed at any time")
	}
	k := &killed{t: t, dir: t.TempDir()}
	l := openAt(t, first(killOptions(k.dir)), second(killOptions(k.dir)))
	rows := map[string]int{}
	checked := 0
	for kills := 0; kills < *killCount; {
		var kill [2]func()
		var done [2]<-chan struct{}
		var places [2]string
		for i := range kill {
			o := killOrder{Seed: rng.Uint64()}
			if n := rng.IntN(2*len(points) + 1); n < len(points) {
				o.Place, o.Nth = points[n], 1+rng.IntN(3)
			}
			places[i] = o.Place
			kill[i], done[i] = k.start(o)
		}
		for i := range kill {
			place := places[i]
			select {
			case <-done[i]:
			case <-time.After(time.Duration(200+rng.IntN(300)) * time.Millisecond):
				place = "at any time"
				kill[i]()
				<-done[i]
			}
			rows[place]++
			kills++
			checked += k.verify(l)
		}
	}
	for place, n := range rows {
		t.Logf("%-24s %d kills", place, n)
	}
	require.Positive(t, checked)
	// What the dead have left goes.
	require.Eventually(t, func() bool { return leaving(t, k.dir) == 0 && len(temporary(t, k.dir)) <= 1 }, time.Minute, 10*time.Millisecond)
	evicted := l.Usage().Evicted
	for _, err := range l.List(t.Context(), "") {
		require.NoError(t, err)
	}
	t.Logf("%d kills, %d puts, %d objects found that were put lately, %d evicted by the test alone, none torn", *killCount, k.puts, checked, evicted)
	require.Zero(t, l.Usage().Corrupt)
}
