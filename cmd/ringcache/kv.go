package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ringcache/ringcache/daemon"
	"github.com/ringcache/ringcache/daemon/client"
	"github.com/ringcache/ringcache/daemon/wire"
	"github.com/ringcache/ringcache/kv"
)

type kvCommand struct {
	Ls    kvLs    `cmd:"" help:"List the layouts of KV that engines have registered."`
	Find  kvFind  `cmd:"" help:"Show how much of a prompt is there, in which levels, and which leases keep it."`
	Clear kvClear `cmd:"" help:"Delete the KV of a model or of a salt from all levels."`
}

// Help is the end of ringcache kv --help.
func (kvCommand) Help() string {
	return `Engines store KV in chunks of tokens, under keys that are computed from the tokens, the layout that the engine
has registered (model, workers, shape, dtype) and the request's cache_salt. The daemon remembers the layouts that were
registered last, also of engines that have ended.

The daemon is found as by ringcache serve status: by --socket, RINGCACHE_SOCKET, or its configuration.

The exit status is 0 if the daemon has answered, 1 if not or if what was asked for does not exist, and 80 if the
command line is wrong.`
}

// daemonSocket is where a command finds the daemon.
type daemonSocket struct {
	Socket string `type:"path" placeholder:"PATH" help:"Socket of the daemon; else by RINGCACHE_SOCKET or --config."`
	Config string `type:"path" placeholder:"FILE" help:"Configuration of the daemon; else that of RINGCACHE_CONFIG."`
}

// kvDaemon is how a command reaches the daemon.
type kvDaemon struct {
	daemonSocket
	Timeout time.Duration `default:"1m" help:"Longest wait for the daemon."`
}

// kvSession is a session with the daemon, and the layouts that it has.
type kvSession struct {
	*client.Client
	layouts []kv.Layout // the last one first
}

// use connects, and calls f. What the daemon does not answer is explained.
func (d kvDaemon) use(f func(ctx context.Context, s *kvSession) error) (err error) {
	config, err := configOf(d.Socket, d.Config)
	if err != nil {
		return err
	}
	ctx, stop := interruptible()
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, d.Timeout)
	defer cancel()
	c, err := client.Dial(ctx, client.Options{Socket: config.Socket, Name: "ringcache kv"})
	if err != nil {
		return explainStatus(config.Socket, err)
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	p, err := c.Stat(ctx, wire.Request{List: true})
	if err != nil {
		return explainStatus(config.Socket, err)
	}
	s := &kvSession{Client: c, layouts: []kv.Layout{}}
	for _, text := range p.Layouts {
		var l kv.Layout
		if err := errors.Join(json.Unmarshal([]byte(text), &l), l.Validate()); err != nil {
			return fmt.Errorf("the daemon has a layout that this release can't read: upgrade both to one release: %w",
				err)
		}
		s.layouts = append(s.layouts, l)
	}
	return f(ctx, s)
}

// configOf returns the configuration of the daemon, whose socket may be given.
func configOf(socket, file string) (daemon.Config, error) {
	s := daemon.Sources{Environ: os.Environ(), File: file, Flags: map[string]string{}}
	if socket != "" {
		s.Flags["socket"] = socket
	}
	return load(s)
}

// of returns the layouts of a model, or all. None is an error.
func (s *kvSession) of(model string) ([]kv.Layout, error) {
	var out []kv.Layout
	var known []string
	for _, l := range s.layouts {
		if model == "" || l.Model == model {
			out = append(out, l)
		}
		if !slices.Contains(known, l.Model) {
			known = append(known, l.Model)
		}
	}
	switch {
	case len(s.layouts) == 0:
		return nil, errors.New("no engine has registered KV at this daemon: start the daemon with --lmcache, and engines with that URL in lmcache.mp.server_urls")
	case len(out) == 0:
		return nil, fmt.Errorf("no engine has registered the model %q; the models are %s",
			model, strings.Join(known, ", "))
	}
	return out, nil
}

type kvLs struct {
	kvDaemon
	JSON bool `name:"json" help:"Print one JSON list, which ringcache migrate takes by --layouts."`
}

// Help is the end of ringcache kv ls --help.
func (kvLs) Help() string {
	return `The layout that was registered last stands first. CHUNK is the tokens of a chunk, BYTES those of one chunk of
one worker. WORD is --lmcache-engine of the daemon. Two engines share KV if they have one line.`
}

// Run lists layouts.
func (c kvLs) Run() error {
	return c.use(func(_ context.Context, s *kvSession) error {
		if c.JSON {
			return writeJSON(os.Stdout, s.layouts)
		}
		if _, err := s.of(""); err != nil {
			return err
		}
		w := newTable(os.Stdout, "MODEL", "WORD", "WORKERS", "CHUNK", "GROUPS", "LAYERS", "DTYPE", "BYTES")
		for _, l := range s.layouts {
			layers, bytes := 0, int64(0)
			var dtypes []string
			for _, g := range l.Groups {
				layers, bytes = layers+g.Layers, bytes+g.Bytes()
				if !slices.Contains(dtypes, g.DType) {
					dtypes = append(dtypes, g.DType)
				}
			}
			w.row(printable(l.Model), orNone(l.Engine), l.World, l.ChunkTokens, len(l.Groups), layers,
				printable(strings.Join(dtypes, " ")), size(bytes))
		}
		return w.flush()
	})
}

type kvClear struct {
	kvDaemon
	Model string  `help:"Model, as its engines have it."`
	Salt  *string `help:"Only what was stored with this cache_salt; an empty text is that of requests without one."`
}

// Help is the end of ringcache kv clear --help.
func (kvClear) Help() string {
	return `With --model alone, everything of the model goes, whatever its salt and layout. Spaces have the last part of a
model's name only: of/this-model and of/another/this-model are cleared together. With --salt, what goes is that of the
layouts that the daemon remembers (ringcache kv ls), of all models or of one.

It waits until the daemon is done. What a lease keeps (ringcache kv find) stays.`
}

// Run clears.
func (c kvClear) Run() error {
	if c.Model == "" && c.Salt == nil {
		return errors.New("name what is to be deleted: a model by --model, a salt by --salt, or both")
	}
	return c.use(func(ctx context.Context, s *kvSession) error {
		var spaces []wire.Request
		if c.Salt == nil {
			prefix, err := modelPrefix(c.Model)
			if err != nil {
				return err
			}
			spaces = append(spaces, wire.Request{Op: wire.Clear, Space: prefix, Prefix: true})
		} else {
			layouts, err := s.of(c.Model)
			if err != nil {
				return err
			}
			for _, l := range layouts {
				all, err := spacesOf(l, *c.Salt)
				if err != nil {
					return err
				}
				for _, space := range slices.Concat(all...) {
					spaces = append(spaces, wire.Request{Op: wire.Clear, Space: space})
				}
			}
		}
		for _, q := range spaces {
			if err := s.clear(ctx, q); err != nil {
				return err
			}
		}
		for {
			p, err := s.Stat(ctx, wire.Request{})
			if err != nil {
				return err
			}
			if !p.State.Clearing {
				_, err = fmt.Println("cleared, but for what leases keep; the daemon's log says how many objects that were")
				return err
			}
			if err := pause(ctx); err != nil {
				return fmt.Errorf("the daemon is still clearing, and goes on without this command: %w", err)
			}
		}
	})
}

// clear has spaces cleared. The daemon takes so many at a time.
func (s *kvSession) clear(ctx context.Context, q wire.Request) error {
	for {
		one, p := q, wire.Reply{}
		err := s.Do(ctx, &one, &p)
		busy := (*wire.Error)(nil)
		if !errors.As(err, &busy) || busy.Kind != wire.KindBusy {
			return err
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

// pause waits for what the daemon does in the background.
func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(10 * time.Millisecond):
		return nil
	}
}

// modelPrefix is how the spaces of a model begin, whatever the rest of its layout.
func modelPrefix(model string) (string, error) {
	l := kv.Layout{
		Model: model, World: 1, ChunkTokens: 1, Groups: []kv.Group{
			{Layers: 1, Slots: 1, Hidden: 1, DType: "uint8", Planes: 1, BlockTokens: 1},
		},
	}
	space, err := l.Space(0, 0, "")
	if err != nil {
		return "", err
	}
	const end = ".worker"
	return space[:strings.LastIndex(space, end)+len(end)], nil
}

// spacesOf returns the spaces of a layout, of each worker those of its groups.
func spacesOf(l kv.Layout, salt string) ([][]string, error) {
	out := make([][]string, l.World)
	for w := range out {
		for g := range l.Groups {
			space, err := l.Space(w, g, salt)
			if err != nil {
				return nil, err
			}
			out[w] = append(out[w], space)
		}
	}
	return out, nil
}
