package redis

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
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/redistest"
	"github.com/ringcache/ringcache/tier"
)

var lies = flag.Int64("lies", 5000, "how many strange answers TestLies gives, among right ones")

// liesVariable has the URL of the server that lies to a process.
const liesVariable = "RINGCACHE_TEST_REDIS_LIES"

// found is what a process that was lied to reports.
type found struct {
	Calls, Compared, Misses, Unavailable int64
	Back                                 int64 // times that a call succeeded after one that found the server away
	Wrong                                []string
	Peak                                 int64 // bytes of memory, with those of the program, at the most
}

// TestLies: a server answers strangely at random, to a process with a level of each layout, or of a cluster.
// The process lives, takes little memory, returns no wrong byte, and uses the server again when that is sane.
// It is a process of its own since the client has goroutines in which nobody can recover. go test
// ./tier/redis -run TestLies -v -lies 1000000 -parallel 4 -timeout 5h
func TestLies(t *testing.T) {
	if url := os.Getenv(liesVariable); url != "" {
		liedTo(t, url)
		return
	}
	levels := []string{"objects", "lmcache", "resp", "cluster"}
	for i, level := range levels {
		share := *lies / int64(len(levels))
		if i == 0 {
			share += *lies % int64(len(levels))
		}
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			f := redistest.NewFake(t)
			url := f.URL() + "?layout=" + level
			if level == "cluster" {
				url = "redis+cluster://" + f.Addr()
			}
			checkLiedTo(t, f, url, share)
		})
	}
}

func checkLiedTo(t *testing.T, f *redistest.Fake, url string, most int64) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var answered, strange atomic.Int64
	enough, once := make(chan struct{}), sync.Once{}
	liar := &liar{random: rand.New(rand.NewPCG(seed, 0))}
	f.Do(func(conn io.Writer, command []string, truth []byte) error {
		answered.Add(1)
		if strange.Load() >= most {
			once.Do(func() { close(enough) })
			_, err := conn.Write(truth)
			return err
		}
		return liar.answer(conn, command[0], truth, &strange)
	})
	child := exec.Command(os.Args[0], "-test.run=^TestLies$", "-test.timeout=0")
	child.Env = append(os.Environ(), liesVariable+"="+url)
	in, err := child.StdinPipe()
	require.NoError(t, err)
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	var errs bytes.Buffer
	child.Stderr = &errs
	require.NoError(t, child.Start())
	ended := make(chan struct{})
	var report found
	var text []byte
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if json.Unmarshal(lines.Bytes(), &report) != nil {
				text = append(append(text, lines.Bytes()...), '\n')
			}
		}
	}()
	select {
	case <-enough:
	case <-ended:
	}
	in.Close() // the server is sane
	<-ended
	require.NoError(t, child.Wait(), "%s%s", text, errs.Bytes())
	t.Logf("%d answers, %d of them strange: %d calls, %d objects compared, %d misses, %d unavailable, back %d times, %d wrong bytes, at most %.1f MiB",
		answered.Load(), strange.Load(), report.Calls, report.Compared, report.Misses, report.Unavailable,
		report.Back, len(report.Wrong), float64(report.Peak)/(1<<20))
	require.GreaterOrEqual(t, strange.Load(), most)
	require.Empty(t, report.Wrong)
	require.Positive(t, report.Compared)
	require.Positive(t, report.Unavailable)
	require.Positive(t, report.Back)
	if !raceEnabled { // which takes several times the memory
		require.Less(t, report.Peak, int64(mostMemory))
	}
}

// liar makes answers.
type liar struct {
	mu     sync.Mutex
	random *rand.Rand
	other  []byte // an earlier truth
	left   int    // answers until the share of strange ones changes
	share  int    // of strange ones, in percent
}

var errCut = errors.New("the connection is closed in place of an answer")

// answer sends the truth, or something else.
func (l *liar) answer(conn io.Writer, command string, truth []byte, strange *atomic.Int64) error {
	l.mu.Lock()
	if l.left--; l.left < 0 {
		l.left, l.share = l.random.IntN(500), []int{1, 10, 70}[l.random.IntN(3)]
	}
	pieces, wait := 1, time.Duration(0)
	send, end := truth, error(nil)
	if l.random.IntN(100) >= l.share { // the truth, in several pieces now and then
		if l.random.IntN(5) == 0 {
			pieces = 1 + l.random.IntN(8)
		}
		if l.random.IntN(100) == 0 {
			wait = time.Duration(l.random.IntN(3000)) * time.Microsecond
		}
	} else {
		strange.Add(1)
		kind := l.random.IntN(200)
		if kind >= 25 && kind < 80 && command == "cluster" {
			kind = 199 // other bytes would be other hosts, and no test asks the network
		}
		switch {
		case kind == 0: // longer than a round trip may take
			wait = 150 * time.Millisecond
		case kind < 25: // cut off
			send, end = truth[:l.random.IntN(len(truth))], errCut
		case kind < 35: // a part is left out
			from := l.random.IntN(len(truth))
			send = append(bytes.Clone(truth[:from]), truth[from+l.random.IntN(len(truth)-from):]...)
		case kind < 80: // some bytes are others
			send = bytes.Clone(truth)
			for range 1 + l.random.IntN(3) {
				send[l.random.IntN(len(send))] = byte(l.random.IntN(256))
			}
		case kind < 90: // that of another question
			send = l.other
		case kind < 100: // twice
			send = append(bytes.Clone(truth), truth...)
		default:
			send = l.value(nil, 0)
			if l.random.IntN(4) == 0 {
				send = append(send, truth...)
			}
			pieces = 1 + l.random.IntN(3)
		}
	}
	if l.random.IntN(20) == 0 {
		l.other = bytes.Clone(truth)
	}
	cuts := make([]int, pieces-1)
	for i := range cuts {
		cuts[i] = l.random.IntN(len(send) + 1)
	}
	l.mu.Unlock()
	if pieces == 1 {
		time.Sleep(wait)
	}
	for _, at := range cuts {
		at = min(at, len(send))
		if _, err := conn.Write(send[:at]); err != nil {
			return err
		}
		send = send[at:]
		time.Sleep(wait)
	}
	if _, err := conn.Write(send); err != nil {
		return err
	}
	return end
}

// value is a random value of RESP2 or RESP3, often one that announces more than follows.
func (l *liar) value(to []byte, depth int) []byte {
	r := l.random
	kind := "+-:$*%~>|=!,(#_x"[r.IntN(16)]
	if r.IntN(2) == 0 {
		kind = "$*"[r.IntN(2)]
	}
	to = append(to, kind)
	switch kind {
	case '+', '-', 'x':
		// few, since the client keeps all addresses that it was sent to
		elsewhere := fmt.Sprint("1 127.0.0.1:", 1+r.IntN(32))
		to = append(to, []string{"", "OK", "QUEUED", "MOVED " + elsewhere, "ASK " + elsewhere, "LOADING", "OOM",
			"NOAUTH", "WRONGTYPE", "EXECABORT", "TRYAGAIN"}[r.IntN(11)]...)
		if r.IntN(10) == 0 {
			to = append(to, bytes.Repeat([]byte{'a'}, r.IntN(100_000))...)
		}
	case '#':
		to = append(to, "tfx"[r.IntN(3)])
	case '_':
	case ':', ',', '(':
		to = strconv.AppendInt(to, l.number(), 10)
		if r.IntN(10) == 0 {
			to = append(to, bytes.Repeat([]byte{'9'}, r.IntN(100_000))...)
		}
	case '$', '=', '!':
		n := l.number()
		to = strconv.AppendInt(to, n, 10)
		if r.IntN(2) == 0 { // as announced, as far as that can be
			to = append(to, "\r\n"...)
			for range min(max(n, 0), 100_000) {
				to = append(to, byte(r.IntN(256)))
			}
		}
	default:
		n := l.number()
		to = append(strconv.AppendInt(to, n, 10), "\r\n"...)
		for range min(max(n, 0), int64(r.IntN(20))) {
			if depth < 20 && len(to) < 200_000 {
				to = l.value(to, depth+1)
			}
		}
		if r.IntN(20) == 0 { // very deep
			to = append(to, bytes.Repeat([]byte("*1\r\n"), r.IntN(50_000))...)
		}
		return to
	}
	return append(to, "\r\n"...)
}

// number is one that lengths have, or one at which something may go wrong.
func (l *liar) number() int64 {
	r := l.random
	switch r.IntN(6) {
	case 0:
		return int64(r.IntN(3)) - 1
	case 1:
		return int64(r.IntN(100_000))
	case 2:
		return int64(1)<<r.IntN(63) + int64(r.IntN(3)) - 1
	case 3:
		return -(int64(1) << r.IntN(63))
	case 4:
		return int64(r.Uint64())
	}
	return int64(r.IntN(40))
}

// liedTo uses a level until its input ends, which means that the server is sane, and then until it works.
func liedTo(t *testing.T, url string) {
	var f found
	var mu sync.Mutex
	stop := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(stop)
	}()
	o := Options{URL: url, Timeout: 100 * time.Millisecond, Retry: time.Millisecond, Connections: 6,
		MaxBytesInFlight: 8 << 20}
	l, err := Open(t.Context(), o)
	for err != nil { // such as NOAUTH
		l, err = Open(t.Context(), o)
	}
	var work sync.WaitGroup
	for w := range 4 {
		work.Go(func() {
			u := &lied{level: l, random: rand.New(rand.NewPCG(0, uint64(w)))}
			for {
				select {
				case <-stop:
					mu.Lock()
					defer mu.Unlock()
					f.Calls += u.Calls
					f.Compared += u.Compared
					f.Misses += u.Misses
					f.Unavailable += u.Unavailable
					f.Back += u.Back
					f.Wrong = append(f.Wrong, u.Wrong...)
					return
				default:
					u.call(t.Context())
				}
			}
		})
	}
	work.Wait()
	u := &lied{level: l, random: rand.New(rand.NewPCG(1, 2))}
	last := u.object("afterwards")
	require.Eventually(t, func() bool {
		return u.put(t.Context(), last) == nil && u.get(t.Context(), last.Name, 0) == nil
	}, 2*time.Minute, time.Millisecond)
	f.Wrong = append(f.Wrong, u.Wrong...)
	require.NoError(t, l.Close())
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	for line := range strings.Lines(string(status)) {
		if n, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			_, err := fmt.Sscanf(n, "%d kB", &f.Peak)
			require.NoError(t, err)
			f.Peak <<= 10
		}
	}
	require.NoError(t, json.NewEncoder(os.Stdout).Encode(f))
}

// lied is one goroutine's use of a level.
type lied struct {
	found
	level  *Level
	random *rand.Rand
	away   bool
}

// object has a size that follows from its name. Layouts without a checksum return what the server says, so
// that only lengths are compared there.
func (u *lied) object(name string) tier.Object {
	size := 1 + len(name)*7919%40_000
	if strings.HasSuffix(name, "7") {
		size *= 10
	}
	o := object(name, size)
	switch u.level.settings.Layout.(type) {
	case LMCache:
		o.Space, o.Note = "", metadataOf(size)
	case RESP:
		o.Space = ""
	}
	return o
}

func (u *lied) put(ctx context.Context, o tier.Object) error {
	p := []tier.Put{{Object: o, Bytes: content(o.Name, int(o.Size))}}
	u.level.Put(ctx, p)
	return p[0].Err
}

// get reads an object in one of three ways, and compares it.
func (u *lied) get(ctx context.Context, name string, way int) error {
	o := u.object(name)
	_, sums := u.level.settings.Layout.(Objects)
	if !sums {
		way = 0 // what a server describes is read into memory of its size at once: Into decides
	}
	g := []tier.Get{{Key: o.Key}}
	var to bytes.Buffer
	switch way {
	case 0:
		g[0].Into = func(o tier.Object) ([]byte, error) {
			if o.Size > 1<<20 {
				return nil, tier.ErrTooLarge
			}
			return make([]byte, o.Size), nil
		}
	case 1:
		g[0].To = &to
	}
	u.level.Get(ctx, g)
	if g[0].Err != nil {
		return g[0].Err
	}
	got := g[0].Bytes
	if way == 1 {
		got = to.Bytes()
	}
	u.Compared++
	if sums && (!bytes.Equal(got, content(name, int(o.Size))) || g[0].Object.Size != o.Size) ||
		int64(len(got)) != g[0].Object.Size {
		u.Wrong = append(u.Wrong, fmt.Sprintf("%d bytes of %v", len(got), g[0].Object))
	}
	return nil
}

func (u *lied) call(ctx context.Context) {
	u.Calls++
	name := strings.Repeat("n", 1+u.random.IntN(20)) + strconv.Itoa(u.random.IntN(10))
	var err error
	switch u.random.IntN(10) {
	case 0, 1, 2:
		err = u.put(ctx, u.object(name))
	case 3, 4, 5, 6:
		err = u.get(ctx, name, u.random.IntN(3))
	case 7:
		err = u.level.Stat(ctx, []tier.Key{u.object(name).Key, u.object(name + "x").Key})[0].Err
	case 8:
		err = u.level.Delete(ctx, []tier.Key{u.object(name).Key})[0]
	default:
		n := 0
		for _, err = range u.level.List(ctx, "") {
			if n++; err != nil || n == 1000 {
				break
			}
		}
	}
	switch {
	case errors.Is(err, tier.ErrUnavailable):
		u.Unavailable++
		u.away = true
		time.Sleep(time.Millisecond)
	case err == nil:
		if u.away {
			u.Back++
		}
		u.away = false
	default:
		u.Misses++
	}
}
