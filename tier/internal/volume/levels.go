package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/disk"
	"github.com/ringcache/ringcache/tier/memory"
)

// keeper is what is written to and read from: a level, or a store over two.
type keeper interface {
	Get(ctx context.Context, gets []tier.Get)
	Put(ctx context.Context, puts []tier.Put)
}

// levels are the level in memory, and with room on disk a store that writes back to that.
type levels struct {
	name   string
	memory *memory.Level
	disk   *disk.Level
	store  *tier.Store
	folder string
}

func open(o options, name string) (l *levels, err error) {
	l = &levels{name: name}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.remove())
		}
	}()
	if l.memory, err = memory.Open(memory.Options{Name: name, Size: int64(o.MemoryGiB * gib)}); err != nil || o.DiskGiB == 0 {
		return l, err
	}
	if l.folder, err = os.MkdirTemp(o.Disk, "ringcache-volume-"); err != nil {
		return l, err
	}
	if l.disk, err = disk.Open(filepath.Join(l.folder, "root"), disk.Options{Capacity: int64(o.DiskGiB * gib)}); err != nil {
		return l, err
	}
	l.store, err = tier.Open(context.Background(), tier.Options{Memory: l.memory, Lower: []tier.Lower{{Level: l.disk}}, MaxBytesInFlight: inFlight})
	return l, err
}

func (l *levels) keeper() keeper {
	if l.store != nil {
		return l.store
	}
	return l.memory
}

// remove closes and removes everything that was opened, and reports what is left behind.
func (l *levels) remove() (err error) {
	if l.store != nil {
		err = l.store.Close()
	}
	if l.disk != nil {
		err = errors.Join(err, l.disk.Close())
	}
	if l.memory != nil {
		err = errors.Join(err, l.memory.CheckStructure(), l.memory.Remove())
	}
	if l.folder != "" {
		err = errors.Join(err, os.RemoveAll(l.folder))
	}
	if left, _ := filepath.Glob(l.segment()); len(left) > 0 {
		err = errors.Join(err, fmt.Errorf("left behind: %q", left))
	}
	return err
}

// segment is the pattern of the files of the memory level.
func (l *levels) segment() string { return filepath.Join("/dev/shm", l.name+"*") }
