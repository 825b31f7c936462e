// Command daemon times calls to a daemon over its socket beside the least that such a call can take, and
// measures what the daemon takes, and how long a kill keeps clients waiting. README.md of the folder above
// has how to run it; results are in ../results/daemon.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ringcache/ringcache/bench/internal/measure"
)

const (
	mib = 1 << 20
	gib = 1 << 30
)

type options struct {
	Sessions int           `help:"Sessions at a time; each is timed alone, too." default:"64"`
	Seconds  float64       `help:"Seconds of a round of a kind of call, and of its floor." default:"1"`
	Rounds   int           `help:"Rounds, in which kinds and floors take turns." default:"5"`
	GiB      float64       `name:"gib" help:"Size of the segment in GiB." default:"4"`
	Objects  int           `help:"Objects in it, which fill nine tenths." default:"100000"`
	Kills    int           `help:"Kills whose time is measured." default:"7"`
	Goal     time.Duration `help:"The longest time from a kill to the next hit. Longer is status 1." default:"2s"`
	Out      string        `help:"Folder for daemon.md. Without it the table is printed."`
	ShmDir   string        `name:"shm-dir" help:"Directory of shared memory." default:"/dev/shm"`
}

// Validate is called by kong.
func (o *options) Validate() error {
	if o.Sessions < 1 || o.Sessions > 200 || o.Seconds <= 0 || o.Rounds < 1 || o.Objects < 1000 ||
		o.size() < minimum || o.Kills < 1 {
		return fmt.Errorf("there must be 1 to 200 sessions, rounds, kills, and 1000 objects with %d bytes each at least", minimum)
	}
	return nil
}

const minimum = 512

// size is that of an object.
func (o *options) size() int { return int(o.GiB*gib*9/10)/max(o.Objects, 1) - 256 }

func main() {
	measure.AsChild(roles)
	var o options
	measure.Main(&o, &o.Out, "Times calls to a daemon, beside an echo of the same frames.", "daemon.md", run)
}

// roles are what this program is as a child of itself.
var roles = map[string]func() error{serveRole: serve, echoRole: echo}

// run measures everything.
func run(ctx context.Context, o options) (r *results, err error) {
	b, err := newBed(o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.remove()) }()
	r = &results{size: o.size()}
	for _, part := range []func(context.Context, *bed, *results) error{costs, calls, kills} {
		if err := part(ctx, b, r); err != nil {
			return nil, err
		}
	}
	return r, ctx.Err()
}
