// Command volume writes many bytes through levels of package tier that have room for few, and watches what they take: bytes of
// each level, files, memory of the process, descriptors. It ends with an error if anything was above its budget, if an
// object was not what was put, or if something was left behind.
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
	Writers   int     `help:"Goroutines that write and read." default:"4"`
	Seed      uint64  `help:"Seed of sizes, keys and reads." default:"1"`
}

// Validate is called by kong.
func (o *options) Validate() error {
	if o.Writers < 1 || o.GiB <= 0 || o.MemoryGiB*gib < 4*float64(o.Writers)*float64(largest) {
		return errors.New("there must be writers and bytes, and room for four objects of 34 MiB by each writer")
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

// report is what a run did and took. Peaks are over the samples.
type report struct {
	took                    time.Duration
	written, found, missed  int64
	bytes                   int64 // written
	full                    int64 // puts that had no room at the time
	memory, capacity        int64 // peak of the level's bytes
	files                   int64 // peak of what the segment's files take
	private, shared         int64 // peaks of the process's own memory, and of mapped shared memory
	evicted                 int64
	descriptors, before, at int // peak, at the begin, at the end
	samples                 int
}

func (r report) String() string {
	return fmt.Sprintf("%s written in %.1f s (%.2f GB/s) as %d objects, %d refused; read back: %d right, %d gone; memory level: most %s of %s, "+
		"its files %s, %d evicted; process: most %s of its own, %s shared, descriptors %d at first, %d at most, %d at the end; %d samples",
		size(r.bytes), r.took.Seconds(), float64(r.bytes)/float64(max(r.took, 1)), r.written, r.full, r.found, r.missed, size(r.memory), size(r.capacity),
		size(r.files), r.evicted, size(r.private), size(r.shared), r.before, r.descriptors, r.at, r.samples)
}

func size(n int64) string {
	if n >= gib {
		return fmt.Sprintf("%.3f GiB", float64(n)/gib)
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/mib)
}
