//go:build linux

package daemontest

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/ringcache/ringcache/daemon/internal/fair"
	"github.com/ringcache/ringcache/daemon/internal/kvload"
	"github.com/ringcache/ringcache/daemon/internal/lmcache"
	"github.com/ringcache/ringcache/daemon/internal/registry"
	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/memory"
)

// complaints is a log of errors: a panic is one.
type complaints struct{}

func (complaints) Write(b []byte) (int, error) {
	say("! %s", strings.ReplaceAll(strings.TrimSpace(string(b)), "\n", " "))
	return len(b), nil
}

func (r *daemonRole) registry(store *tier.Store, level *memory.Level) (*registry.Registry, error) {
	return registry.Open(registry.Options{Store: store, Memory: level, Grace: r.Grace, Limits: registry.Limits{
		Connections: 256, Sessions: 256, Leases: 1024, Held: r.Size, Longest: time.Hour, Ordinary: time.Minute,
	}})
}

func (r *daemonRole) newLMCache(all *registry.Registry, store *tier.Store, level *memory.Level) (served, error) {
	s, err := lmcache.NewServer(lmcache.Options{
		Registry: all, Rooms: &fair.Rooms{Turns: fair.NewTurns(4), Bodies: fair.NewBudget(lmcache.RoomOfBodies)},
		Store: store, Memory: level, Segment: level.Segment(), Dir: r.Dir, ChunkSize: kvChunk, State: filepath.Join(r.Dir, "load.engines"),
		Logger: slog.New(slog.NewTextHandler(complaints{}, &slog.HandlerOptions{Level: slog.LevelError})),
	})
	if err != nil {
		return nil, err
	}
	return registered{lmcache.NewGRPC(s), all, 0}, nil
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
	ctx, rest := obey()
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
					say("= %s", encoded(named))
					say(".")
				},
				Rest: rest,
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

// rests lets the clients of a daemon that was not killed under them end their requests, and waits until no lease has
// anything, while they are there. Then it ends them, and waits until they have left nothing.
func (p *process) rests(c *crowd) {
	p.t.Helper()
	for _, x := range c.clients() {
		_, _ = fmt.Fprintln(x.in, "rest")
	}
	p.await("nothing held, since requests have ended", func(f facts) bool { return f.Pinned == 0 && f.Reserved == 0 })
	c.killAll()
	p.nothingHeld()
}

// nothingHeld waits until no lease has anything: the clients have gone.
func (p *process) nothingHeld() {
	p.t.Helper()
	p.await("nothing left, since clients have gone", func(f facts) bool { return f.Pinned == 0 && f.Reserved == 0 && f.Sessions == 0 })
}
