//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringcache/ringcache/daemon/internal/kvload"
)

// timed are the times of a kind of call, in microseconds.
type timed []float64

func (t timed) at(p float64) float64 {
	if len(t) == 0 {
		return 0
	}
	slices.Sort(t)
	return t[min(len(t)-1, int(p*float64(len(t))))]
}

// results are what was measured, by the name of the server.
type results struct {
	sessions []int
	counts   []int
	calls    map[string]map[string]timed // by server, then by "SESSIONS METHOD"
	perCore  map[string]map[int]float64  // calls for each second of CPU, by sessions
	lookups  map[string]map[int]timed    // by chunks in the store
	perChunk map[string]map[int]float64  // bytes
	kills    map[string]timed            // seconds to the next hit, with all recomputed that was lost
	kept     map[string]bool
}

// The four data calls, and the others of a request.
var methods = []string{"Lookup", "QueryPrefetchStatus", "PrepareRetrieve", "CommitRetrieve", "PrepareStore",
	"CommitStore", "EndSession"}

const (
	promptChunks = 8 // of a request: the first four are found, and the others stored
	foundChunks  = 4
	callChunk    = 256
	callHidden   = 8
)

// calls times the calls of requests, by 1 session and by more.
func calls(ctx context.Context, b *bed, r *results) error {
	r.calls, r.perCore = map[string]map[string]timed{}, map[string]map[int]float64{}
	var all []*server
	defer func() {
		for _, s := range all {
			s.remove()
		}
	}()
	used, made := map[string]time.Duration{}, map[string]int{}
	for _, k := range slices.Clone(b.kinds) {
		s, err := b.start(ctx, k, callChunk, 512, 60_000)
		if err != nil && k.mode == "native" && b.o.native == "" {
			progress("without the package, %s is left out", k.name)
			b.kinds = slices.DeleteFunc(b.kinds, func(x kind) bool { return x == k })
			continue
		}
		if err != nil {
			return err
		}
		all = append(all, s)
		r.calls[k.name], r.perCore[k.name] = map[string]timed{}, map[int]float64{}
		progress("%s listens", k.name)
	}
	number := 0
	for round := range b.o.rounds + 1 { // the first one only warms up
		for _, sessions := range r.sessions {
			for _, s := range all {
				times, n, cpu, err := load(ctx, s, sessions, b.o.seconds, number)
				if err != nil {
					return fmt.Errorf("%s with %d sessions: %w\n%s", s.name, sessions, err, s.log)
				}
				number += 1 << 16
				if round == 0 {
					continue
				}
				at := fmt.Sprint(s.name, " ", sessions)
				used[at], made[at] = used[at]+cpu, made[at]+n
				r.perCore[s.name][sessions] = float64(made[at]) / max(used[at].Seconds(), 0.01)
				for method, list := range times {
					key := fmt.Sprint(sessions, " ", method)
					r.calls[s.name][key] = append(r.calls[s.name][key], list...)
				}
			}
		}
		progress("round %d of the calls", round)
	}
	return nil
}

// load lets sessions make requests for some time, each session with an engine of its own.
func load(ctx context.Context, s *server, sessions int, seconds float64,
	number int) (times map[string]timed, calls int, cpu time.Duration, err error) {
	times = map[string]timed{}
	var mu sync.Mutex
	var measuring atomic.Bool
	observe := func(method string, took time.Duration) {
		if !measuring.Load() {
			return
		}
		_, name, _ := strings.Cut(method, "/")
		mu.Lock()
		defer mu.Unlock()
		times[name] = append(times[name], float64(took.Nanoseconds())/1e3)
		calls++
	}
	engines := make([]*kvload.Engine, sessions)
	defer func() {
		for _, e := range engines {
			if e != nil {
				_ = e.Unregister(ctx)
				_ = e.Close()
			}
		}
	}()
	for i := range engines {
		if engines[i], err = s.connect(ctx, 1, callHidden, observe); err != nil {
			return nil, 0, 0, err
		}
		// What its requests begin with, and what shows that it maps the segment.
		r := &kvload.Request{ID: "warm", Prompt: kvload.NewPrompt(number+i*512, promptChunks, engines[i].Chunk)}
		if _, err := engines[i].Store(ctx, r, 0, promptChunks, func() {}); err != nil {
			return nil, 0, 0, err
		}
	}
	before, _, err := s.taken()
	if err != nil {
		return nil, 0, 0, err
	}
	measuring.Store(true)
	end := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	errs := make(chan error, sessions)
	for i, e := range engines {
		go func() {
			var err error
			for n := 1; err == nil && time.Now().Before(end); n++ {
				// Eight prompts begin alike, and the next eight with chunks that nobody has stored.
				p := kvload.NewPrompt(number+i*512+n%512, promptChunks, e.Chunk)
				err = request(ctx, e, &kvload.Request{
					ID: fmt.Sprint("r", number, "-", i, "-", n), Prompt: p, Salt: fmt.Sprint(n / 512),
				})
			}
			errs <- err
		}()
	}
	for range engines {
		if e := <-errs; e != nil {
			err = e
		}
	}
	measuring.Store(false)
	after, _, err2 := s.taken()
	if err == nil {
		err = err2
	}
	return times, calls, after - before, err
}

// request is what an engine does for a request.
func request(ctx context.Context, e *kvload.Engine, r *kvload.Request) error {
	if err := e.Ask(ctx, r, 0, promptChunks); err != nil {
		return err
	}
	found, err := e.Status(ctx, r)
	if err != nil {
		return err
	}
	if found > 0 {
		if _, err := e.Load(ctx, r, 0, found, func() {}); err != nil {
			return err
		}
	}
	if found < promptChunks {
		if _, err := e.Store(ctx, r, found, promptChunks, func() {}); err != nil {
			return err
		}
	}
	return e.End(ctx, r)
}

const (
	lookupChunks = 1000 // of a prompt
	storeChunks  = 100  // of a call
	lookupChunk  = 16
	lookupHidden = 2
)

// lookups times look-ups of 1,000 chunks in stores that have more and more of them.
func lookups(ctx context.Context, b *bed, r *results) error {
	r.lookups, r.perChunk = map[string]map[int]timed{}, map[string]map[int]float64{}
	for _, k := range b.kinds {
		r.lookups[k.name], r.perChunk[k.name] = map[int]timed{}, map[int]float64{}
		err := func() error {
			objects, mib := r.counts[len(r.counts)-1], 1024
			s, err := b.start(ctx, k, lookupChunk, mib, objects+objects/10)
			if err != nil {
				return err
			}
			defer s.remove()
			e, err := s.connect(ctx, 1, lookupHidden, nil)
			if err != nil {
				return err
			}
			defer func() { _ = e.Close() }()
			stored := 0
			_, before, err := s.taken()
			if err != nil {
				return err
			}
			for _, count := range r.counts {
				if k.release != "" && count > 100_000 || k.bare && count > 1000 {
					break
				}
				begin := time.Now()
				for ; stored < count; stored += lookupChunks {
					q := &kvload.Request{
						ID: fmt.Sprint("s", stored), Prompt: kvload.NewPrompt(8*stored, lookupChunks, e.Chunk),
					}
					for from := 0; from < lookupChunks; from += storeChunks {
						if _, err := e.Store(ctx, q, from, from+storeChunks, func() {}); err != nil {
							return err
						}
					}
					if err := e.End(ctx, q); err != nil {
						return err
					}
				}
				_, now, err := s.taken()
				if err != nil {
					return err
				}
				if !k.bare { // it stores nothing
					r.perChunk[k.name][count] = float64(now-before) / float64(stored)
				}
				for i := range 100 {
					n := i * 7919 % (count / lookupChunks) * lookupChunks
					q := &kvload.Request{
						ID: fmt.Sprint("l", count, "-", i), Prompt: kvload.NewPrompt(8*n, lookupChunks, e.Chunk),
					}
					t := time.Now()
					err := e.Ask(ctx, q, 0, lookupChunks)
					if err != nil {
						return err
					}
					found, err := e.Status(ctx, q)
					if err != nil {
						return err
					}
					r.lookups[k.name][count] = append(r.lookups[k.name][count],
						float64(time.Since(t).Nanoseconds())/1e3)
					if err := e.End(ctx, q); err != nil {
						return err
					}
					if found != lookupChunks {
						return fmt.Errorf("%s has %d of %d chunks of a prompt, of %d chunks in all\n%s",
							k.name, found, lookupChunks, count, s.log)
					}
				}
				progress("%s with %d chunks after %v", k.name, count, time.Since(begin).Round(time.Second))
			}
			return nil
		}()
		if err != nil {
			progress("%v", err) // the table has the gap
		}
	}
	return nil
}

// kills measures the time from SIGKILL to the next chunk that is found. What a server has lost is stored again.
func kills(ctx context.Context, b *bed, r *results) error {
	r.kills, r.kept = map[string]timed{}, map[string]bool{}
	for _, k := range b.kinds {
		if k.bare {
			continue
		}
		err := func() error {
			s, err := b.start(ctx, k, callChunk, 512, 60_000)
			if err != nil {
				return err
			}
			defer func() { s.remove() }()
			e, err := s.connect(ctx, 1, callHidden, nil)
			if err != nil {
				return err
			}
			defer func() { _ = e.Close() }()
			q := &kvload.Request{ID: "first", Prompt: kvload.NewPrompt(1, promptChunks, e.Chunk)}
			if _, err := e.Store(ctx, q, 0, promptChunks, func() {}); err != nil {
				return err
			}
			r.kept[k.name] = true
			for i := range 3 {
				begin := time.Now()
				s.kill()
				if err := s.begin(); err != nil {
					return err
				}
				for n := 0; ; n++ {
					q := &kvload.Request{ID: fmt.Sprint("k", i, "-", n), Prompt: q.Prompt}
					found := 0
					err := e.Ask(ctx, q, 0, promptChunks)
					if err == nil {
						found, err = e.Status(ctx, q)
					}
					if err == nil && found == promptChunks {
						break
					}
					if ctx.Err() != nil || time.Since(begin) > 3*time.Minute {
						return fmt.Errorf("%s: nothing is found again: %w\n%s", k.name, err, s.log)
					}
					r.kept[k.name] = r.kept[k.name] && err != nil
					if err == nil { // it has lost all, and the engine's registration
						fresh, err := s.connect(ctx, 1, callHidden, nil)
						if err != nil {
							continue
						}
						_ = e.Close()
						e = fresh
						_, _ = e.Store(ctx, q, 0, promptChunks, func() {})
					}
				}
				r.kills[k.name] = append(r.kills[k.name], time.Since(begin).Seconds())
			}
			progress("%s was killed", k.name)
			return nil
		}()
		if err != nil {
			progress("%v", err)
		}
	}
	return nil
}
