// Command tiers keeps objects in shared memory and on a disk, where they outlive it. docs/tiers.md shows what
// survives which loss.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/disk"
	"github.com/ringcache/ringcache/tier/memory"
)

type options struct {
	segment, shmDir, folder string
	kill, remove            bool
}

func main() {
	var o options
	flag.StringVar(&o.segment, "segment", "tiers-example", "name of the segment")
	flag.StringVar(&o.shmDir, "shm-dir", "", "folder of shared memory, /dev/shm if empty")
	flag.StringVar(&o.folder, "disk", "/tmp/tiers-example", "folder for the objects on disk")
	flag.BoolVar(&o.kill, "kill", false, "end by SIGKILL, before all is written to the disk")
	flag.BoolVar(&o.remove, "remove", false, "remove segment and folder at the end")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "tiers:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	level, err := memory.Open(memory.Options{Name: o.segment, Dir: o.shmDir, Size: 16 << 20}) // takes over what is there
	if err != nil {
		return err
	}
	defer func() {
		if o.remove {
			err = errors.Join(err, level.Remove(), os.RemoveAll(o.folder))
		} else {
			err = errors.Join(err, level.Close()) // the objects stay for the next process
		}
	}()
	onDisk, err := disk.Open(o.folder, disk.Options{Capacity: 1 << 30})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, onDisk.Close()) }()
	store, err := tier.Open(ctx, tier.Options{Memory: level, Lower: []tier.Lower{{Level: onDisk, Write: tier.Back}}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()

	names := []string{"page-1", "page-2", "page-3", "page-4"}
	for _, name := range names[:3] {
		if err := use(ctx, store, name); err != nil {
			return err
		}
	}
	if err := drain(ctx, store); err != nil {
		return err
	}
	if err := use(ctx, store, names[3]); err != nil {
		return err
	}
	if o.kill { // page-4 is in memory, and perhaps not on the disk yet
		self, err := os.FindProcess(os.Getpid())
		if err != nil {
			return err
		}
		if err := self.Kill(); err != nil {
			return err
		}
		select {} // until the signal is here
	}
	return drain(ctx, store)
}

// use gets an object from the fastest level that has it. What no level has is made and stored.
func use(ctx context.Context, store *tier.Store, name string) error {
	key := tier.Key{Space: "example", Name: name}
	at := store.Stat(ctx, []tier.Key{key})[0] // before Get, which may bring it to memory
	get := []tier.Get{{Key: key}}
	store.Get(ctx, get)
	switch err := get[0].Err; {
	case err == nil && !bytes.Equal(get[0].Bytes, compute(name)):
		return fmt.Errorf("%s has other bytes than were stored", name)
	case err == nil && at.Err == nil:
		fmt.Printf("%s: found in %s\n", name, at.Levels[0])
		return nil
	case !errors.Is(err, tier.ErrNotFound):
		return errors.Join(at.Err, err)
	}
	b := compute(name)
	put := []tier.Put{{Object: tier.Object{Key: key, Size: int64(len(b))}, Bytes: b}}
	store.Put(ctx, put)
	if put[0].Err != nil {
		return put[0].Err
	}
	fmt.Printf("%s: not found, made and stored\n", name)
	return nil
}

// compute stands for what takes long, as the output of an encoder.
func compute(name string) []byte { return bytes.Repeat([]byte(name+"\n"), 100_000) }

// drain waits until the disk has all that was stored so far.
func drain(ctx context.Context, store *tier.Store) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	left, err := store.Drain(ctx)
	if err != nil {
		return fmt.Errorf("%d objects are not on disk: %w", len(left), err)
	}
	fmt.Println("drained: the disk has everything")
	return nil
}
