// Command volume writes many bytes through levels of package tier that have room for few, and watches what
// they take: bytes of each level, files, memory of the process, descriptors. It prints one line, and ends
// with status 1 if anything was above its budget, if an object was not what was put, or if something was left
// behind.
//
//	go run ./tier/internal/volume               # 10 GiB through a level of 1 GiB of package tier/memory
//	go run ./tier/internal/volume --disk-gib 3  # through a store with a level on disk below it
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
)

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
)

type options struct {
	GiB       float64 `name:"gib" help:"Bytes to write, in GiB." default:"10"`
	MemoryGiB float64 `name:"memory-gib" help:"Size of the level in memory, in GiB." default:"1"`
	DiskGiB   float64 `name:"disk-gib" help:"Capacity of a level on disk below that, in GiB, which a store writes back to. 0 is none." default:"0"`
	Disk      string  `help:"Folder on that disk. Empty is that of temporary files."`
	Writers   int     `help:"Goroutines that write and read." default:"4"`
	Seed      uint64  `help:"Seed of sizes, keys and reads." default:"1"`
}

// Validate is called by kong.
func (o *options) Validate() error {
	room := 4 * float64(o.Writers) * largest / gib
	if o.Writers < 1 || o.GiB <= 0 || o.MemoryGiB < room || o.DiskGiB != 0 && o.DiskGiB < room {
		return errors.New("there must be writers and bytes, and in each level room for four objects of 34 MiB by each writer")
	}
	return nil
}

func main() {
	var o options
	k := kong.Parse(&o, kong.Description("Writes many bytes through levels that have room for few, and watches what they take."))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	r, err := run(ctx, o)
	stop()
	fmt.Println(r)
	k.FatalIfErrorf(err)
}

// report is what a run did and took, in bytes and numbers. What levels and process take is the most of all samples.
type report struct {
	took                    time.Duration
	bytes, written          int64
	full                    int64 // puts that had no room at the time
	found, missed           int64 // of what was read back
	memory, segment         int64 // of the objects in memory, and of the files of the segment
	disk, files             int64 // of the objects on disk, and of the files there
	private, shared         int64 // of the process: its own memory, and mapped shared memory
	evicted                 int64 // from memory
	before, descriptors, at int   // at the begin, the most, at the end
	samples                 int
}

func (r report) String() string {
	below := ""
	if r.files > 0 {
		below = fmt.Sprintf("disk level: at most %s, its files %s; ", size(r.disk), size(r.files))
	}
	return fmt.Sprintf("%s written in %.1f s as %d objects, %d refused; read back: %d right, %d gone; memory level: at most %s, its files %s, "+
		"%d evicted; %sprocess: at most %s of its own, %s shared, descriptors %d at first, %d at most, %d at the end; %d samples",
		size(r.bytes), r.took.Seconds(), r.written, r.full, r.found, r.missed, size(r.memory), size(r.segment),
		r.evicted, below, size(r.private), size(r.shared), r.before, r.descriptors, r.at, r.samples)
}

func size(n int64) string {
	if n >= gib {
		return fmt.Sprintf("%.3f GiB", float64(n)/gib)
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/mib)
}
