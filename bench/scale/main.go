// Command scale simulates what 1 to 1,000 hosts find in their own levels and in a store that they share, and how long
// fetches take over a network. README.md describes it.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/alecthomas/kong"

	"github.com/ringcache/ringcache/internal/sizing"
)

type options struct {
	Seed     uint64        `help:"Seed of traces and times." default:"1"`
	Hosts    []int         `help:"How many hosts." default:"1,10,100,1000"`
	Loads    []string      `help:"What to simulate." enum:"images,conversations,kept" default:"images,conversations,kept"`
	Share    float64       `help:"Share of the requests to simulate." default:"1"`
	HostLink float64       `help:"Gbit/s of the link of a host." default:"25"`
	Link     float64       `help:"Gbit/s of the link of the store." default:"100"`
	Delay    time.Duration `help:"Time from one host to another." default:"100us"`
	Service  time.Duration `help:"Time that the store takes for a request, before it begins the next one." default:"20us"`
	Compare  bool          `help:"Compare the calculator with simulations, too." default:"true" negatable:""`
	Trace    string        `help:"File of requests as of ringcache serve plan, in place of those of --loads." placeholder:"FILE"`
	Out      string        `help:"Folder for scale.md and its charts; without it the table is printed." placeholder:"FOLDER"`
}

func (o options) network() network {
	const gbit = 1e9 / 8
	return network{Host: o.HostLink * gbit, Store: o.Link * gbit, Delay: o.Delay.Seconds(), Service: o.Service.Seconds()}
}

func (o options) validate() error {
	switch {
	case len(o.Hosts) == 0 || slices.Min(o.Hosts) < 1 || slices.Max(o.Hosts) > sizing.MaxHosts:
		return fmt.Errorf("--hosts must be from 1 to %d", sizing.MaxHosts)
	case o.Share <= 0 || o.Share > 100:
		return errors.New("--share must be above 0, and at most 100")
	case o.HostLink <= 0 || o.Link <= 0 || o.Delay < 0 || o.Service < 0:
		return errors.New("links must have a rate, and times may not be negative")
	}
	return nil
}

// levels are what hosts have.
type levels struct {
	name  string
	disk  bool
	store func(l load) int64
}

var variants = []levels{
	{"memory", false, func(load) int64 { return 0 }},
	{"memory, store", false, func(l load) int64 { return l.store }},
	{"memory, disk", true, func(load) int64 { return 0 }},
	{"memory, disk, store", true, func(l load) int64 { return l.store }},
	{"memory, disk, all stored", true, func(load) int64 { return sizing.Unbounded }},
}

// row is a run.
type row struct {
	load   load
	levels levels
	hosts  int
	result
}

func (o options) rows() (rows []row, err error) {
	for _, l := range loads {
		if !slices.Contains(o.Loads, l.name) {
			continue
		}
		if l.requests = int(float64(l.requests) * o.Share); l.requests < 2 {
			return nil, errors.New("--share leaves less than two requests for a host")
		}
		for _, hosts := range o.Hosts {
			t := l.trace(o.Seed, hosts, l.requests)
			if o.Trace != "" {
				if t, err = readTrace(o.Trace, l.trace(o.Seed, 1, 2).Size(0)); err != nil {
					return nil, err
				}
				t.Spread(hosts, rand.New(rand.NewPCG(o.Seed, 0)))
			}
			rows = append(rows, o.runs(l, hosts, t)...)
		}
	}
	return rows, nil
}

// runs are those of one trace. What memory has does not depend on the disk.
func (o options) runs(l load, hosts int, t *sizing.Trace) (rows []row) {
	withDisk := t.Replay(hosts, l.memory, l.disk)
	without := slices.Clone(withDisk)
	for i, at := range without {
		if at == sizing.OnDisk {
			without[i] = sizing.Nowhere
		}
	}
	for _, v := range variants {
		found := without
		if v.disk {
			found = withDisk
		}
		rows = append(rows, row{l, v, hosts, simulate(t, found, l, hosts, v.store(l), o.network(), o.Seed)})
	}
	return rows
}

func readTrace(path string, size int64) (*sizing.Trace, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t, err := sizing.ReadTrace(f, size, false)
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return t, err
}

func main() {
	var o options
	k := kong.Parse(&o, kong.Description("Simulates hosts that share a store."))
	k.FatalIfErrorf(o.validate())
	k.FatalIfErrorf(run(o))
}

func run(o options) error {
	rows, err := o.rows()
	if err != nil {
		return err
	}
	var b bytes.Buffer
	writeTable(&b, o, rows)
	if o.Compare {
		var all []compared
		for _, s := range steadyLoads {
			all = append(all, s.compare(o.Seed, o.network()))
		}
		writeComparison(&b, all)
	}
	if o.Out == "" {
		_, err := os.Stdout.Write(b.Bytes())
		return err
	}
	err = errors.Join(os.MkdirAll(o.Out, 0o755), os.WriteFile(filepath.Join(o.Out, "scale.md"), b.Bytes(), 0o644))
	for name, c := range charts(rows) {
		err = errors.Join(err, os.WriteFile(filepath.Join(o.Out, name+".svg"), c.SVG(), 0o644))
	}
	return err
}
