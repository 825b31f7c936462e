package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ringcache/ringcache/encoder"
	"github.com/ringcache/ringcache/internal/shmfile"
	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/disk"
	"github.com/ringcache/ringcache/tier/memory"
	"github.com/ringcache/ringcache/tier/redis"
)

// open opens the level that the command line names. One that is only read is read beside the
// process that serves it.
func (p place) open(ctx context.Context, write bool) (level tier.Level, space string, err error) {
	switch {
	case strings.HasPrefix(p.Level, "shm:"):
		name := strings.TrimPrefix(p.Level, "shm:")
		if p.Layout != "" {
			return nil, "", errors.New("--layout is for folders")
		}
		if write {
			level, err = memory.Open(memory.Options{Name: name, Dir: p.Dir})
		} else {
			level, err = memory.Look(name, p.Dir)
		}
		if _, gone := os.Stat(filepath.Join(cmp.Or(p.Dir, shmfile.DefaultDir), name)); err != nil && errors.Is(gone, fs.ErrNotExist) {
			err = fmt.Errorf("there is no segment %q in %s; ringcache serve status names that of a daemon: %w", name, cmp.Or(p.Dir, shmfile.DefaultDir), fs.ErrNotExist)
		}
		return level, "", err
	case strings.Contains(p.Level, "://"):
		if p.Layout != "" {
			return nil, "", errors.New("--layout is for folders; the URL of a Redis contains its layout: ?layout=lmcache&space=NAME")
		}
		l, err := redis.Open(ctx, redis.Options{URL: p.Level})
		if err != nil {
			return nil, "", err
		}
		if err := l.Ping(ctx); err != nil {
			return nil, "", errors.Join(err, l.Close())
		}
		return l, "", nil
	}
	return p.openFolder(ctx, write)
}

// openFolder opens a root, or a tree of vLLM's connectors that no Level has opened yet.
func (p place) openFolder(ctx context.Context, write bool) (level tier.Level, space string, err error) {
	if _, err := os.Stat(p.Level); err != nil { // disk.Open would make it
		return nil, "", err
	}
	layout, space, err := disk.Identify(p.Level)
	switch {
	case err == nil && p.Layout != "" && p.Layout != layout:
		return nil, "", fmt.Errorf("%s has the layout %s, not %s", p.Level, layout, p.Layout)
	case errors.Is(err, fs.ErrNotExist) && p.Layout == "":
		return nil, "", fmt.Errorf("%s is not a folder of objects; if it is a tree of vLLM's ECExampleConnector, give --layout %s; of LMCache's FS connector, --layout %s",
			p.Level, encoder.Tree{}.Name(), disk.LMCache{}.Name())
	case errors.Is(err, fs.ErrNotExist):
		layout = p.Layout
	case err != nil:
		return nil, "", err
	}
	o := disk.Options{Space: space, ReadOnly: !write}
	switch layout {
	case disk.Native{}.Name():
	case encoder.Tree{}.Name():
		o.Space = cmp.Or(o.Space, p.Space, layout)
		o.Layout, o.Shared = encoder.Tree{}, true
	case disk.LMCache{}.Name():
		o.Space = cmp.Or(o.Space, p.Space, layout)
		o.Layout, o.Shared = disk.LMCache{}, true
	default:
		return nil, "", fmt.Errorf("%s has the layout %q, which this release of ringcache does not have", p.Level, layout)
	}
	l, err := disk.Open(p.Level, o)
	if err != nil {
		return nil, "", err
	}
	if err := l.WaitIndex(ctx); err != nil { // what the listing lacks is not verified, and not removed
		return nil, "", errors.Join(err, l.Close())
	}
	return l, o.Space, nil
}
