//go:build linux

package daemontest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringcache/ringcache/daemon/internal/fair"
	"github.com/ringcache/ringcache/daemon/internal/kvload"
	"github.com/ringcache/ringcache/daemon/internal/lmcache"
	"github.com/ringcache/ringcache/daemon/internal/registry"
	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/disk"
	"github.com/ringcache/ringcache/tier/memory"
)

// kvDaemonRole is a process with a server of LMCache's protocol. It prints and answers lines as daemonRole does.
type kvDaemonRole struct {
	Dir   string // of the segment, the socket and the folder
	Size  int64
	Disk  bool
	Grace time.Duration
}

func (r *kvDaemonRole) socket() string { return filepath.Join(r.Dir, "kv") }

// kvFacts are what such a daemon says of itself.
type kvFacts struct {
	Pinned, Reserved, Sessions, Descriptors, Goroutines int
	Heap                                                uint64
}

// complaints is a log of errors: a panic is one.
type complaints struct{}

func (complaints) Write(b []byte) (int, error) {
	say("! %s", strings.ReplaceAll(strings.TrimSpace(string(b)), "\n", " "))
	return len(b), nil
}

func (r *kvDaemonRole) run() {
	if err := r.serve(); err != nil {
		say("! %v", err)
		os.Exit(1)
	}
	say("ended")
}

func (r *kvDaemonRole) serve() (err error) {
	level, err := memory.Open(memory.Options{Name: "kv-load", Dir: r.Dir, Size: r.Size, MaxObjects: 8192, MaxLeases: 8192, MaxPins: 1 << 16})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, level.CheckStructure(), level.Close()) }()
	say("memory")
	if err := level.CheckStructure(); err != nil {
		return err
	}
	o := tier.Options{Memory: level, MaxBacklog: 1 << 30}
	if r.Disk {
		lower, err := disk.Open(filepath.Join(r.Dir, "disk"), disk.Options{})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, lower.Close()) }()
		o.Lower = []tier.Lower{{Level: lower}}
	}
	store, err := tier.Open(context.Background(), o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	all, err := registry.Open(registry.Options{Store: store, Memory: level, Grace: r.Grace, Limits: registry.Limits{
		Connections: 256, Sessions: 256, Leases: 1024, Held: r.Size, Longest: time.Hour, Ordinary: time.Minute,
	}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, all.Check()); all.Close() }()
	server, err := lmcache.NewServer(lmcache.Options{
		Registry: all, Rooms: &fair.Rooms{Turns: fair.NewTurns(4), Bodies: fair.NewBudget(lmcache.RoomOfBodies)},
		Store: store, Memory: level, Segment: level.Segment(), Dir: r.Dir, ChunkSize: kvChunk, State: filepath.Join(r.Dir, "kv-load.engines"),
		Logger: slog.New(slog.NewTextHandler(complaints{}, &slog.HandlerOptions{Level: slog.LevelError})),
	})
	if err != nil {
		return err
	}
	say("server")
	if err := os.Remove(r.socket()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l, err := net.Listen("unix", r.socket())
	if err != nil {
		return err
	}
	g, served := lmcache.NewGRPC(server), make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	say("ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		f := kvFacts{Sessions: all.Counts().Sessions, Goroutines: runtime.NumGoroutine()}
		for _, l := range store.Leases() {
			f.Pinned, f.Reserved = f.Pinned+len(l.Pinned), f.Reserved+len(l.Reserved)
		}
		f.Descriptors, _, _ = takes(os.Getpid())
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		f.Heap = m.HeapAlloc
		b, err := json.Marshal(f)
		if err != nil {
			return err
		}
		say("%s", b)
	}
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	g.Shutdown(ctx)
	return <-served
}

const kvChunk = 16

// kvEngines are the engines of a client process. The first ones share what they store: of both releases, and with
// bytes within messages.
func kvEngines(target, dir string) map[string]kvload.Options {
	one := kvload.Options{Target: target, Dir: dir, Model: "org/model", Block: 16, Layers: []int{4}, Hidden: 16, World: 1, Timeout: patience}
	old, inline, parallel, hybrid := one, one, one, one
	old.Old = true
	inline.Inline = true
	parallel.World = 2
	hybrid.Model, hybrid.Layers = "org/hybrid", []int{2, 1}
	return map[string]kvload.Options{"0.5.7": one, "0.5.6": old, "inline": inline, "two workers": parallel, "two groups": hybrid}
}

// kvClientRole is a process of engines. It prints lines as clientRole does. At a line its sessions end, each after its
// request, and at the end of its input it ends.
type kvClientRole struct {
	Target, Dir string
	Prompts     int
	Sessions    int // of each engine
	Seed        uint64
	MayLapse    bool
	DieIn       int // dies by itself at one of so many stages; 0 is never
}

func (r *kvClientRole) run() {
	ctx, stop := context.WithCancel(context.Background())
	var rest atomic.Bool
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			rest.Store(true)
		}
		stop()
	}()
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(r.Seed, 1<<32))
	var wg sync.WaitGroup
	for name, e := range kvEngines(r.Target, r.Dir) {
		wg.Go(func() {
			err := kvload.Load(ctx, kvload.LoadOptions{
				Engine: e, Sessions: r.Sessions, Prompts: r.Prompts, Chunks: 24, Salts: 2, Seed: r.Seed, MayLapse: r.MayLapse,
				Count: func(counts map[string]int) {
					named := map[string]int{}
					for what, n := range counts {
						named[name+": "+what] = n
					}
					b, err := json.Marshal(named)
					if err != nil {
						panic(err)
					}
					say("= %s", b)
					say(".")
				},
				Rest: rest.Load,
				At: func() {
					mu.Lock()
					defer mu.Unlock()
					if r.DieIn > 0 && rng.IntN(r.DieIn) == 0 {
						failpoint.Die()
					}
				},
			})
			if err != nil {
				say("! %s: %v", name, strings.ReplaceAll(err.Error(), "\n", " "))
			}
		})
	}
	wg.Wait()
}

// kvFacts asks the daemon.
func (p *process) kvFacts() (f kvFacts) {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.in); err != nil {
		p.t.Fatalf("the daemon has ended: %v, %s", err, p.bad)
	}
	select {
	case line := <-p.lines:
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			p.t.Fatalf("%q: %v", line, err)
		}
	case <-time.After(patience):
		p.t.Fatal("the daemon says nothing")
	}
	return f
}

// rests lets the clients of a daemon that was not killed under them end their requests, and waits until no lease has
// anything, while they are there. Then it ends them, and waits until they have left nothing.
func (p *process) rests(c *crowd) {
	p.t.Helper()
	for _, x := range c.clients() {
		_, _ = fmt.Fprintln(x.in, "rest")
	}
	p.await("requests have ended, and hold", func(f kvFacts) bool { return f.Pinned == 0 && f.Reserved == 0 })
	c.killAll()
	p.nothingHeld()
}

// nothingHeld waits until no lease has anything: the clients have gone.
func (p *process) nothingHeld() {
	p.t.Helper()
	p.await("clients have gone, and left", func(f kvFacts) bool { return f.Pinned == 0 && f.Reserved == 0 && f.Sessions == 0 })
}

func (p *process) await(what string, is func(kvFacts) bool) {
	p.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		f := p.kvFacts()
		if is(f) {
			return
		}
		if time.Now().After(end) {
			p.t.Fatalf("%s %+v", what, f)
		}
	}
}
