// Command page measures what an open page of `ringcache serve` costs a busy daemon: clients call at a steady rate, and
// by turns the page is open or not. README.md of the folder above has how to run it.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ringcache/ringcache/bench/internal/measure"
)

type options struct {
	Minutes  float64       `help:"Minutes of load." default:"10"`
	Rate     int           `help:"Calls a second, of all sessions." default:"1000"`
	Sessions int           `help:"Sessions at a time." default:"8"`
	Pages    int           `help:"Pages that are open at a time." default:"1"`
	Turn     time.Duration `help:"How long the page is open, and then not." default:"10s"`
	Objects  int           `help:"Objects in the segment." default:"100000"`
	GiB      float64       `name:"gib" help:"Size of the segment in GiB." default:"0.5"`
	Goal     float64       `help:"The most per cent by which calls may be slower with the page. More is status 1; 0 is no limit." default:"0"`
	Out      string        `help:"Folder for page.md. Without it the table is printed."`
	ShmDir   string        `name:"shm-dir" help:"Directory of shared memory." default:"/dev/shm"`
}

// Validate is called by kong.
func (o *options) Validate() error {
	if o.Minutes <= 0 || o.Rate < 1 || o.Sessions < 1 || o.Sessions > 200 || o.Pages < 1 || o.Pages > 16 ||
		o.Turn < 100*time.Millisecond || o.Objects < batch || o.GiB <= 0 {
		return fmt.Errorf("there must be 1 to 200 sessions, 1 to 16 pages, turns of 100 ms, and %d objects at least", batch)
	}
	return nil
}

func main() {
	measure.AsChild(roles)
	var o options
	measure.Main(&o, &o.Out, "Measures calls to a daemon with and without an open page.", "page.md", run)
}

// run measures: turns with the page and without it, each pair in another order than the one before.
func run(ctx context.Context, o options) (r *results, err error) {
	b, err := newBed(ctx, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.remove()) }()
	l, err := b.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer l.end()
	r = &results{}
	end := time.Now().Add(time.Duration(o.Minutes * float64(time.Minute)))
	for i := 0; len(r.with) == 0 || time.Now().Before(end) || len(r.with) != len(r.without); i++ {
		open := i%4 == 1 || i%4 == 2
		t, err := b.turn(ctx, l, open)
		if err != nil {
			return nil, err
		}
		if open {
			r.with = append(r.with, t)
		} else {
			r.without = append(r.without, t)
		}
	}
	return r, ctx.Err()
}
