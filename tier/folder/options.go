package folder

import (
	"fmt"
	"io/fs"
	"log/slog"
	"runtime"
	"strings"
	"time"

	"github.com/ringcache/ringcache/tier/disk"
)

// Options describe a root. The zero value of every field works. All levels over one root have the same Layout and Space;
// Capacity and MinAge should be the same, too, since any of the levels may be the one that evicts.
type Options struct {
	// Layout decides where files are, and their form; nil is disk.Native. A layout with a folder for each object leaves
	// empty folders behind.
	Layout disk.Layout
	// Space, if not empty, is the only space of the root, as in disk.Options.
	Space string
	// Capacity is the most bytes of files of all levels together. It is no hard bound: the root is searched every
	// minute, and until then, and for MinAge, it may have more. 0 is no limit; then objects are evicted when the file
	// system is full.
	Capacity int64
	// MinAge is how long a file stays after it was put, even if room is needed. After it was read it stays for half as
	// long at least. 0 is 10 minutes.
	MinAge time.Duration
	// Sync is when files are written to the medium. SyncDefault is SyncNever if files of the layout have checksums,
	// which find torn files, and SyncFile otherwise.
	Sync disk.Sync
	// Timeout is how long a single call of the file system may take. A second is added for every 32 MiB that it moves.
	// A call that takes longer is abandoned, and the level is away until the file system answers. 0 is 5 seconds.
	Timeout time.Duration
	// Retry is the time between two looks at a file system that is away. 0 is 1 second.
	Retry time.Duration
	// Workers is how many files are open at a time, at most, and so how many calls can hang. 0 is 4 per processor, and
	// at least 16.
	Workers int
	// Logger gets what was evicted, and what keeps the root from being cleaned up. nil is silent.
	Logger *slog.Logger

	// The rest is for tests.

	interval time.Duration // between two looks at the root
	lease    time.Duration // how long a lease that nobody renews stays
	grace    time.Duration // between the two steps of an eviction
	tempAge  time.Duration // of temporary files that are nobody's any more
}

// Validate reports what is wrong with the options, as an fs.ErrInvalid.
func (o Options) Validate() error {
	if err := o.disk().Validate(); err != nil {
		return err
	}
	if o.Timeout < 0 || o.Retry < 0 {
		return fmt.Errorf("folder: Timeout is %v, and Retry %v: %w", o.Timeout, o.Retry, fs.ErrInvalid)
	}
	if strings.IndexByte(o.Space, 0) >= 0 {
		return fmt.Errorf("folder: Space has a zero byte: %w", fs.ErrInvalid)
	}
	return nil
}

// disk are the options that package disk has, too.
func (o Options) disk() disk.Options {
	return disk.Options{Layout: o.Layout, Space: o.Space, Capacity: o.Capacity, MinAge: o.MinAge, Sync: o.Sync, Workers: o.Workers}
}

// withDefaults replaces zeros by what they stand for.
func (o Options) withDefaults() Options {
	orElse(&o.Layout, disk.Layout(disk.Native{}))
	orElse(&o.MinAge, 10*time.Minute)
	orElse(&o.Timeout, 5*time.Second)
	orElse(&o.Retry, time.Second)
	orElse(&o.Workers, max(16, 4*runtime.GOMAXPROCS(0)))
	orElse(&o.interval, time.Minute)
	orElse(&o.lease, time.Minute)
	orElse(&o.grace, 5*time.Second)
	orElse(&o.tempAge, time.Hour)
	if o.Sync == disk.SyncDefault {
		o.Sync = disk.SyncFile
		if disk.HasSums(o.Layout) {
			o.Sync = disk.SyncNever
		}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

func orElse[T comparable](value *T, instead T) {
	var zero T
	if *value == zero {
		*value = instead
	}
}

// limit is how long a call of the file system may take that moves so many bytes.
func (o *Options) limit(bytes int64) time.Duration {
	return o.Timeout + time.Duration(float64(bytes)/(32<<20)*float64(time.Second))
}

// maxObject is the largest object, in bytes.
const maxObject = 1 << 44
