// Command put-get-hit times the store beside the real vLLM in one run and
// prints ratios: absolute times of a shared machine mean little.
//
// Ours is measured with both policies: fifo, which is vLLM's own, and pool, which
// also sums the bytes of every put, so that whoever adopts the segment can check
// them.
//
// Both sides do the same: one uint8 tensor per object; a ring with room for
// eight, full, so that every put evicts; one reader, which counts under a lock.
// put is Put of a new key; get is a read with the count: as a view in place,
// with the bytes copied out to memory that is used again, which is what vLLM's
// reader does, and as a clone in new memory, which the garbage collector takes
// back; hit is the look-up of a key that is there (ours gives its signature too).
package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"text/tabwriter"

	"github.com/alecthomas/kong"
)

type options struct {
	Python string `help:"Interpreter of the interop environment." required:""`
	Peer   string `help:"The peer's script." default:"../interop/bench_peer.py" type:"existingfile"`
	Rounds int    `help:"Rounds of each side in one turn." default:"15"`
	Turns  int    `help:"Turns; the sides alternate, and which is first." default:"4"`
	KiB    []int  `help:"Sizes of the objects in KiB." default:"4,16,64,256,1024,4096,8192,24576"`
}

// measurement names one row and what the peer calls it.
var measurements = []struct {
	name string
	peer string
	ours func(*bench, int) (float64, error)
}{
	{"put", "put", (*bench).put},
	{"get, view", "get", (*bench).view},
	{"get, copy", "get", (*bench).copied},
	{"get, clone", "get", (*bench).clone},
	{"hit", "hit", (*bench).hit},
}

func main() {
	var o options
	ctx := kong.Parse(&o, kong.Description("put, get and hit beside the real vLLM, as ratios."))
	ctx.FatalIfErrorf(run(o))
}

func run(o options) (err error) {
	p, err := startPeer(o.Python, o.Peer)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "object\toperation\tvLLM µs\tfifo µs\tpool µs\tvLLM / fifo\tvLLM / pool\t")
	for _, kib := range o.KiB {
		for _, m := range measurements {
			var theirs, fifo, pool []float64
			for turn := range o.Turns {
				sides := []func() error{
					func() error { return p.measure(m.peer, kib<<10, o.Rounds, &theirs) },
					func() error { return measure(m.ours, "fifo", kib<<10, o.Rounds, &fifo) },
					func() error { return measure(m.ours, "pool", kib<<10, o.Rounds, &pool) },
				}
				if turn%2 == 1 {
					slices.Reverse(sides)
				}
				for _, side := range sides {
					if err := side(); err != nil {
						return fmt.Errorf("%s of %d KiB: %w", m.name, kib, err)
					}
				}
			}
			v, f, p := median(theirs), median(fifo), median(pool)
			fmt.Fprintf(t, "%d KiB\t%s\t%.1f\t%.2f\t%.2f\t%.1f\t%.1f\t\n", kib, m.name, v/1e3, f/1e3, p/1e3, v/f, v/p)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Printf("median of %d turns of %d rounds; peer: vLLM %s\n", o.Turns, o.Rounds, p.version)
	return nil
}

func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	if n := len(x); n%2 == 0 {
		return (x[n/2-1] + x[n/2]) / 2
	}
	return x[len(x)/2]
}
