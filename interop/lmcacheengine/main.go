// Command lmcacheengine is the Go half of the interop test of lmcache/engine: it saves or loads the KV of one request,
// through a folder or a Redis that it shares with LMCache. The job is JSON on its input, and so is the answer.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/ringcache/ringcache/kv"
	"github.com/ringcache/ringcache/kv/paged"
	"github.com/ringcache/ringcache/lmcache/engine"
	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/disk"
	"github.com/ringcache/ringcache/tier/memory"
	"github.com/ringcache/ringcache/tier/redis"
)

type job struct {
	Op            string // save, load or look up
	Folder, Redis string // one of them
	Layered       bool
	Model, DType  string
	Algorithm     kv.Algorithm
	ChunkTokens   int
	Geometry      paged.Geometry
	Tensors       [][]byte
	Tokens, Slots []int64
	Skip          int
}

type answer struct {
	End     int // of what was found
	Stored  engine.Stored
	Tensors [][]byte
}

func main() {
	var j job
	err := json.NewDecoder(os.Stdin).Decode(&j)
	if err == nil {
		var a answer
		if a, err = j.run(context.Background()); err == nil {
			err = json.NewEncoder(os.Stdout).Encode(a)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "lmcacheengine:", err)
		os.Exit(1)
	}
}

const space = "lmcache"

func (j *job) shared(ctx context.Context) (tier.Level, error) {
	if j.Redis != "" {
		return redis.Open(ctx, redis.Options{URL: j.Redis, Layout: redis.LMCache{Space: space}})
	}
	return disk.Open(j.Folder, disk.Options{Layout: disk.LMCache{}, Space: space, Shared: true})
}

func (j *job) run(ctx context.Context) (a answer, err error) {
	dir, err := os.MkdirTemp("", "lmcacheengine")
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	level, err := memory.Open(memory.Options{Name: "memory", Dir: dir, Size: 32 << 20})
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, level.CheckStructure(), level.Remove()) }()
	shared, err := j.shared(ctx)
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, shared.Close()) }()
	store, err := tier.Open(ctx, tier.Options{Memory: level, Lower: []tier.Lower{{Level: shared}}})
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	e, err := j.engine(store)
	if err != nil {
		return a, err
	}
	r := engine.Request{Tokens: j.Tokens, Slots: j.Slots, Skip: j.Skip}
	switch j.Op {
	case "look up":
		a.End, err = e.Lookup(ctx, r, nil)
	case "save":
		if a.Stored, err = j.save(ctx, e, r); err == nil {
			_, err = store.Drain(ctx)
		}
	case "load":
		a.End, err = j.load(ctx, e, r)
		a.Tensors = j.Tensors
	default:
		err = fmt.Errorf("no operation %q", j.Op)
	}
	return a, err
}

func (j *job) engine(store *tier.Store) (*engine.Engine, error) {
	g := j.Geometry
	buffers, err := paged.New(g, j.Tensors)
	if err != nil {
		return nil, err
	}
	hasher, err := kv.NewHasher(kv.Scheme{
		Algorithm: j.Algorithm, ChunkTokens: j.ChunkTokens,
		Seed: "0", Legacy: true, KeepTail: true,
	})
	if err != nil {
		return nil, err
	}
	database, err := kv.NewTokenDatabase(hasher, kv.EngineKey{Model: j.Model, World: 1, DType: j.DType})
	if err != nil {
		return nil, err
	}
	return engine.New(engine.Options{
		Store: store, Buffers: buffers, Database: database, Space: space, Layered: j.Layered,
		Layout: kv.Layout{
			Model: j.Model, World: 1, ChunkTokens: j.ChunkTokens,
			Groups: []kv.Group{{
				Layers: g.Layers, Slots: j.ChunkTokens,
				Hidden: g.Heads * g.HeadSize, DType: j.DType,
				Planes: g.Layout.Planes(), BlockTokens: g.BlockTokens,
			}},
		},
	})
}

func (j *job) save(ctx context.Context, e *engine.Engine, r engine.Request) (engine.Stored, error) {
	if !j.Layered {
		return e.Store(ctx, r)
	}
	s, err := e.SaveLayers(ctx, r)
	if err != nil {
		return engine.Stored{}, err
	}
	defer s.Abort()
	for layer := range j.Geometry.Layers {
		if err := s.Layer(layer); err != nil {
			return engine.Stored{}, err
		}
	}
	return s.Commit()
}

func (j *job) load(ctx context.Context, e *engine.Engine, r engine.Request) (int, error) {
	if !j.Layered {
		return e.Retrieve(ctx, r)
	}
	l, err := e.LoadLayers(ctx, r)
	if err != nil {
		return 0, err
	}
	for _, err := range l.Layers(ctx) {
		if err != nil {
			return 0, err
		}
	}
	return l.End(), nil
}
