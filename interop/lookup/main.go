// Command lookup is the Go half of the interop test of package lmcache/lookup: a worker that LMCache's
// schedulers ask, or a scheduler that asks LMCache's workers. It reads lines of JSON, and answers each with
// one.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"

	"github.com/ringcache/ringcache/kv"
	"github.com/ringcache/ringcache/lmcache/lookup"
)

// command is a line. The first one makes what the others are for.
type command struct {
	Op string
	// serve and connect: the engine, its workers, and how they hash.
	Base, Engine string
	Ranks        []int
	Algorithm    kv.Algorithm
	Seed         string
	Chunk        int
	Tail         bool
	Blending     bool
	// store: keys of chunks that worker Rank has. stored: Tokens of the request ID are stored. ask: a look-up.
	Rank    int
	Keys    []string
	ID      string
	Tokens  []int64
	Options string
}

type answer struct {
	N     int
	Error string
}

// workers are what is stored at each worker.
type workers struct {
	mu      sync.Mutex
	stored  map[int]map[string]bool
	servers []*lookup.Server
	wait    sync.WaitGroup
	client  *lookup.Client
}

func main() {
	in, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	in.Buffer(nil, 64<<20)
	w := &workers{stored: map[int]map[string]bool{}}
	for in.Scan() {
		var c command
		err := json.Unmarshal(in.Bytes(), &c)
		var a answer
		if err == nil {
			a.N, err = w.run(c)
		}
		if err != nil {
			a.Error = err.Error()
		}
		if err := out.Encode(a); err != nil {
			fmt.Fprintln(os.Stderr, "lookup:", err)
			os.Exit(1)
		}
	}
	for _, s := range w.servers {
		_ = s.Close()
	}
	w.wait.Wait()
	if w.client != nil {
		_ = w.client.Close()
	}
}

func (w *workers) run(c command) (int, error) {
	switch c.Op {
	case "serve", "connect":
		return 0, w.begin(c)
	case "store":
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, k := range c.Keys {
			w.stored[c.Rank][k] = true
		}
		return len(c.Keys), nil
	case "stored":
		return 0, w.servers[0].Stored(c.ID, c.Tokens)
	case "ask":
		return w.client.Lookup(context.Background(), c.ID, c.Tokens, c.Options)
	}
	return 0, fmt.Errorf("no operation %q", c.Op)
}

func (w *workers) begin(c command) error {
	h, err := kv.NewHasher(kv.Scheme{
		Algorithm: c.Algorithm, ChunkTokens: c.Chunk, Seed: c.Seed, Legacy: true, KeepTail: c.Tail,
	})
	if err != nil {
		return err
	}
	a := lookup.Address{Base: c.Base, Engine: c.Engine}
	var paths []string
	for _, rank := range c.Ranks {
		path, err := a.Path(rank)
		if err != nil {
			return err
		}
		paths = append(paths, path)
		if c.Op == "serve" {
			if err := w.serve(h, c, rank, path); err != nil {
				return err
			}
		}
	}
	if c.Op == "connect" {
		o := lookup.ClientOptions{Paths: paths}
		if !c.Blending {
			o.Database, err = database(h, c.Ranks[0])
		}
		if err == nil {
			w.client, err = lookup.NewClient(o)
		}
	}
	return err
}

func database(h *kv.Hasher, rank int) (*kv.TokenDatabase, error) {
	return kv.NewTokenDatabase(h, kv.EngineKey{Model: "org/m", World: 2, Worker: rank, DType: "bfloat16"})
}

func (w *workers) serve(h *kv.Hasher, c command, rank int, path string) error {
	d, err := database(h, rank)
	if err == nil && c.Blending {
		key := kv.EngineKey{Model: "org/m", World: 2, Worker: rank, DType: "bfloat16"}
		d, err = kv.NewSegmentDatabase(h, key, []int64{7, 8})
	}
	if err != nil {
		return err
	}
	w.stored[rank] = map[string]bool{}
	o := lookup.ServerOptions{
		Blending: c.Blending,
		Lookup: func(_ context.Context, r lookup.Request) (int, error) {
			return w.find(d, rank, r)
		},
	}
	if !c.Blending {
		o.Hasher = h
	}
	s, err := lookup.NewServer(o)
	if err != nil {
		return err
	}
	l, err := lookup.Listen(path)
	if err != nil {
		return err
	}
	w.servers = append(w.servers, s)
	w.wait.Go(func() { _ = s.Serve(l) })
	return nil
}

// find returns how many tokens of a request a worker has.
func (w *workers) find(d *kv.TokenDatabase, rank int, r lookup.Request) (n int, err error) {
	tags, err := kv.ParseTags([]byte(r.Options))
	if err != nil {
		return 0, err
	}
	chunks, err := d.Hashed(r.Hashes, r.Lengths, tags)
	if r.Tokens != nil {
		chunks, err = d.Chunks(r.Tokens, 0, tags)
	}
	if err != nil {
		return 0, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range chunks {
		text, err := c.Key.AppendText(nil)
		if err != nil {
			return 0, err
		}
		if !w.stored[rank][string(text)] {
			return n, nil
		}
		n = c.End
	}
	return n, nil
}
