// Command tiers compares eviction rules on prompts whose parts need the part in front of them: what a level
// of package tier does with chunks. README.md has the results.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/alecthomas/kong"
)

type options struct {
	Seed    uint64    `help:"Seed of the first trace." default:"1"`
	Seeds   int       `help:"Traces of each kind; the table has their means." default:"2"`
	Prompts int       `help:"Prompts of a trace." default:"6000"`
	GiB     []float64 `name:"gib" help:"Capacities in GiB." default:"8,32,128"`
	Out     string    `help:"Folder for tiers.md and the charts. Without it the table is printed."`
}

// Validate is called by kong.
func (o *options) Validate() error {
	if o.Seeds < 1 || o.Prompts < 1 || len(o.GiB) == 0 || slices.Min(o.GiB) <= 0 {
		return errors.New("there must be seeds, prompts and capacities")
	}
	return nil
}

// row is a workload with a capacity.
type row struct {
	workload workload
	gib      float64
	results  []result // by contender, and the bound; means over the seeds
	// more is what the learned rule saves of the time beyond LRU, with the seed for which that is least.
	more float64
}

// rows replays everything, on all cores.
func (o options) rows() ([]row, error) {
	var rows []row
	var err error
	for _, w := range workloads {
		traces := make([][]prompt, o.Seeds)
		for s := range traces {
			traces[s] = w.trace(o.Seed+uint64(s), o.Prompts)
		}
		for _, g := range o.GiB {
			r, e := compare(w, g, traces)
			rows, err = append(rows, r), errors.Join(err, e)
		}
	}
	return rows, err
}

func compare(w workload, gib float64, traces [][]prompt) (row, error) {
	capacity := int64(gib * (1 << 30))
	all := make([][]result, len(traces))
	errs := make([]error, len(traces))
	var wg sync.WaitGroup
	for s, prompts := range traces {
		wg.Go(func() {
			uses := flat(prompts)
			for _, c := range contenders {
				all[s] = append(all[s], replay(prompts, c.make(uses, capacity)))
			}
			all[s] = append(all[s], bound(uses, capacity))
			errs[s] = checkBound(all[s])
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return row{}, fmt.Errorf("%s, %g GiB: %w", w.name, gib, err)
	}
	r := row{workload: w, gib: gib, results: make([]result, len(contenders)+1), more: 1}
	for _, one := range all {
		for i := range r.results {
			r.results[i] = r.results[i].add(one[i], 1/float64(len(all)))
		}
		r.more = min(r.more, one[learned].time-one[lru].time)
	}
	return r, nil
}

func main() {
	var o options
	k := kong.Parse(&o, kong.Description("Compares eviction rules on prompts whose parts need the part in front of them."))
	k.FatalIfErrorf(run(o))
}

func run(o options) error {
	rows, err := o.rows()
	if err != nil {
		return err
	}
	var b bytes.Buffer
	writeTable(&b, o, rows)
	if o.Out == "" {
		_, err := os.Stdout.Write(b.Bytes())
		return err
	}
	err = errors.Join(os.MkdirAll(o.Out, 0o755), os.WriteFile(filepath.Join(o.Out, "tiers.md"), b.Bytes(), 0o644))
	for name, c := range charts(rows) {
		err = errors.Join(err, os.WriteFile(filepath.Join(o.Out, name+".svg"), c.SVG(), 0o644))
	}
	return err
}
