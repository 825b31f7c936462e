//go:build linux

package daemontest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
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

	"github.com/ringcache/ringcache/internal/failpoint"
)

// clientRole is a process of sessions. It reads names of spaces, and prints "." for each step, "p SPACE NUMBERS" for
// what is committed, "! TEXT" for what must not be, and "= COUNTS" now and then. It ends at the end of its input.
type clientRole struct {
	Socket, Dir string
	Space       string
	Objects     int
	Sessions    int
	Seed        uint64
	MayFull     bool
	MayLapse    bool
	MayAway     bool
	DieIn       int // dies by itself at one of so many stages; 0 is never
}

func (r *clientRole) run() {
	var space atomic.Pointer[string]
	space.Store(&r.Space)
	ctx, stop := context.WithCancel(context.Background())
	var mu sync.Mutex
	counts, steps := map[string]int{}, 0
	tell := func() {
		say("= %s", encoded(counts))
		clear(counts)
	}
	rng := rand.New(rand.NewPCG(r.Seed, 1<<32))
	o := LoadOptions{
		Socket: r.Socket, Dir: r.Dir, Objects: r.Objects, Sessions: r.Sessions, Seed: r.Seed, MayFull: r.MayFull, MayLapse: r.MayLapse, MayAway: r.MayAway,
		Space: func() string { return *space.Load() },
		Done: func(space string, committed []int) {
			line := "."
			if len(committed) > 0 {
				line = "p " + space
			}
			for _, n := range committed {
				line += fmt.Sprint(" ", n)
			}
			say("%s", line)
			mu.Lock()
			defer mu.Unlock()
			if steps++; steps%100 == 0 {
				tell()
			}
		},
		Count: func(what string, n int) {
			mu.Lock()
			defer mu.Unlock()
			counts[what] += n
		},
		At: func(stage string) {
			if r.DieIn == 0 {
				return
			}
			mu.Lock()
			dies, after := rng.IntN(r.DieIn) == 0, time.Duration(rng.IntN(300))*time.Microsecond
			mu.Unlock()
			if dies && (stage == "committing" || stage == "pinned") {
				time.AfterFunc(after, failpoint.Die) // in the midst of the next call
			} else if dies {
				failpoint.Die()
			}
		},
	}
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			s := in.Text()
			space.Store(&s)
		}
		stop()
	}()
	if err := Load(ctx, o); err != nil {
		say("! %v", strings.ReplaceAll(err.Error(), "\n", " "))
	}
	mu.Lock()
	defer mu.Unlock()
	tell()
}

// obey makes a client process obey its input: at a line its clients shall rest, and at the end the context ends.
func obey() (ctx context.Context, rest func() bool) {
	ctx, stop := context.WithCancel(context.Background())
	var told atomic.Bool
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			told.Store(true)
		}
		stop()
	}()
	return ctx, told.Load
}

// crowd is the client processes of a test.
type crowd struct {
	t      *testing.T
	on     func(*exec.Cmd) // puts the processes on a host; nil is this one
	ledger *Ledger
	steps  chan struct{} // a value for each step; full is fine
	ends   chan struct{} // a value when a process has ended; full is fine

	mu     sync.Mutex
	bad    []string
	counts map[string]int
	died   int
	list   map[*member]bool
}

type member struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	ended chan struct{}
}

func newCrowd(t *testing.T) *crowd {
	c := &crowd{t: t, ledger: &Ledger{}, steps: make(chan struct{}, 1<<20), ends: make(chan struct{}, 1), counts: map[string]int{}, list: map[*member]bool{}}
	t.Cleanup(c.killAll)
	return c
}

// add starts a process.
func (c *crowd) add(r role) {
	c.t.Helper()
	x := &member{cmd: child(c.t, r), ended: make(chan struct{})}
	if c.on != nil {
		c.on(x.cmd)
	}
	var err error
	x.in, err = x.cmd.StdinPipe()
	require.NoError(c.t, err)
	out, err := x.cmd.StdoutPipe()
	require.NoError(c.t, err)
	require.NoError(c.t, start(x.cmd))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list[x] = true
	go func() {
		defer close(x.ended)
		in := bufio.NewReader(out)
		for {
			line, err := in.ReadString('\n')
			if err != nil { // what is cut off was not said
				break
			}
			c.heard(strings.TrimSuffix(line, "\n"))
		}
		err := x.cmd.Wait()
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.list, x)
		select {
		case c.ends <- struct{}{}:
		default:
		}
		if code := x.cmd.ProcessState.ExitCode(); code < 0 {
			c.died++
		} else if err != nil {
			c.bad = append(c.bad, err.Error())
		}
	}()
}

func (c *crowd) heard(line string) {
	kind, rest, _ := strings.Cut(line, " ")
	switch kind {
	case "p":
		f := strings.Fields(rest)
		var list []int
		for _, x := range f[1:] {
			n, err := strconv.Atoi(x)
			if err != nil {
				panic(line)
			}
			list = append(list, n)
		}
		c.ledger.Add(f[0], list)
		fallthrough
	case ".":
		select {
		case c.steps <- struct{}{}:
		default:
		}
	case "=":
		var counts map[string]int
		if json.Unmarshal([]byte(rest), &counts) == nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			for k, n := range counts {
				c.counts[k] += n
			}
		}
	default:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.bad = append(c.bad, line)
	}
}

// wrong returns what clients have seen that must not be.
func (c *crowd) wrong() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bad
}

func (c *crowd) clients() []*member {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]*member, 0, len(c.list))
	for x := range maps.Keys(c.list) {
		list = append(list, x)
	}
	return list
}

// killAll ends all at once.
func (c *crowd) killAll() {
	for _, x := range c.clients() {
		_ = x.cmd.Process.Kill()
		<-x.ended
	}
}

// end ends all in peace: their leases stay, and their processes are gone.
func (c *crowd) end() {
	for _, x := range c.clients() {
		_ = x.in.Close()
		<-x.ended
	}
}
