package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/ringcache/ringcache/daemon"
	"github.com/ringcache/ringcache/internal/sizes"
	"github.com/ringcache/ringcache/internal/sizing"
)

type servePlan struct {
	Hosts   int        `default:"1" help:"How many hosts have a daemon of this configuration."`
	Rate    float64    `required:"" placeholder:"N" help:"Requests a second, of all hosts together."`
	Object  sizeOption `placeholder:"SIZE" help:"Bytes of an object."`
	Objects int        `placeholder:"N" help:"How many objects are asked for again and again."`
	Zipf    float64    `default:"0.8" help:"The n-th of them is asked for as often as n to the power of minus this."`
	Once    float64    `default:"0" help:"Share of requests for objects that nobody asks for again, 0 to 1."`
	Trace   string     `type:"existingfile" placeholder:"FILE" help:"Requests to replay, in place of --objects."`
	Chain   bool       `help:"Each key in a line of --trace needs those in front of it, as chunks of KV do."`

	Store     storeOption   `placeholder:"SIZE" help:"Bytes of the Redis, bucket or folder that all hosts share, or all."`
	Cost      time.Duration `placeholder:"TIME" help:"Time to compute an object."`
	HostLink  linkOption    `placeholder:"RATE" help:"What the link of a host carries each way, such as 25Gbit."`
	StoreLink linkOption    `placeholder:"RATE" help:"What the link of the store carries each way."`
	JSON      bool          `name:"json" help:"Print one JSON object."`
}

// Help is the end of ringcache serve plan --help.
func (servePlan) Help() string {
	return `It calculates what hosts find in their levels, what goes over each link, and what is left to compute. Of
the settings only size, disk and disk-size matter. Nothing is opened but the configuration and --trace.

Without --trace a request asks for one object, by Zipf's law, and the figures are those of a load that has gone on
for long. --trace has a line for each request of all hosts, in order, with keys and blanks between them. A key may have
=BYTES behind it. A line may also be a JSON object with a list hash_ids, as in public traces of KV, whose keys need those
in front of them. Levels are empty at first, and the figures are of the second half of the file.

Any host gets any request. What a host does not find is asked of the store, which gives up what was used least lately.
What comes from there, and what is computed, is kept in memory and on the disk; what is computed is written to the store.

LOAD is the part of a link that is in use; from about 70 % on, requests wait for each other.

The exit status is 0 if there is an answer, 78 if the configuration is wrong, 80 if the command line is, and 1 otherwise.`
}

// sizeOption is a size as the settings have it.
type sizeOption int64

// UnmarshalText reads 4GiB.
func (s *sizeOption) UnmarshalText(text []byte) error {
	n, err := sizes.Parse(string(text))
	*s = sizeOption(n)
	return err
}

// storeOption is a size, or sizing.Unbounded.
type storeOption int64

// UnmarshalText reads 4GiB, or all.
func (s *storeOption) UnmarshalText(text []byte) error {
	if string(text) == "all" {
		*s = sizing.Unbounded
		return nil
	}
	n, err := sizes.Parse(string(text))
	if err == nil && n == 0 {
		err = errors.New("0 bytes: leave --store out if hosts share nothing")
	}
	*s = storeOption(n)
	return err
}

// linkOption is bytes a second.
type linkOption float64

// UnmarshalText reads 25Gbit, 800Mbit, or bytes as 3GB.
func (l *linkOption) UnmarshalText(text []byte) error {
	for unit, bytes := range map[string]float64{"Gbit": 1e9 / 8, "Mbit": 1e6 / 8} {
		number, ok := strings.CutSuffix(string(text), unit)
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(number, 64)
		if err != nil || n <= 0 || n > 1e9 {
			return fmt.Errorf("%q is no rate: write it as 25Gbit or 800Mbit", text)
		}
		*l = linkOption(n * bytes)
		return nil
	}
	n, err := sizes.Parse(string(text))
	if err != nil || n == 0 {
		return fmt.Errorf("%q is no rate: write it as 25Gbit or 800Mbit, or as bytes a second, such as 3GB", text)
	}
	*l = linkOption(n)
	return nil
}

// badCommandLine is the exit status of a wrong command line, as kong has it.
const badCommandLine = 80

// maxPlanObjects bounds tables that have 16 bytes for each.
const maxPlanObjects = 1e7

// check finds what is wrong with the command line.
func (c servePlan) check() error {
	switch {
	case c.Hosts < 1 || c.Hosts > sizing.MaxHosts:
		return fmt.Errorf("--hosts must be from 1 to %d", sizing.MaxHosts)
	case !(c.Rate > 0) || math.IsInf(c.Rate, 0):
		return errors.New("--rate must be above 0")
	case c.Cost < 0:
		return errors.New("--cost is negative")
	case c.StoreLink > 0 && c.Store == 0:
		return errors.New("--store-link is set, and --store is not: give the bytes of what hosts share")
	case c.Trace != "" && c.Objects != 0:
		return errors.New("--objects is for a load without --trace: give one of them")
	case c.Trace != "":
		return nil
	case c.Chain:
		return errors.New("--chain is about the lines of --trace: give a file")
	case c.Objects < 1 || c.Objects > maxPlanObjects:
		return fmt.Errorf("--objects must be from 1 to %.0f, or give a file of requests by --trace", maxPlanObjects)
	case c.Object < 1:
		return errors.New("--object is missing: give the bytes of an object, such as 2.5MiB")
	case !(c.Zipf >= 0 && c.Zipf <= 5):
		return errors.New("--zipf must be from 0 to 5")
	case !(c.Once >= 0 && c.Once < 1):
		return errors.New("--once must be from 0 to less than 1")
	}
	return nil
}

// sizes returns the bytes of all levels.
func (c servePlan) sizes(config daemon.Config) (sizing.Sizes, error) {
	z := sizing.Sizes{Hosts: c.Hosts, Memory: config.Size, Store: int64(c.Store)}
	switch {
	case config.Disk != "" && config.DiskSize == 0:
		return z, errors.New("disk has no bound: set disk-size to the bytes that objects may take there")
	case config.Disk != "" && config.DiskWrite != "back" || config.RedisWrite != "back" ||
		config.FolderWrite != "back" || config.S3Write != "back":
		return z, errors.New("what is computed is taken as written to all levels: disk-write, folder-write, redis-write and s3-write must be back")
	case config.Redis != "" && c.Store == 0:
		return z, errors.New("a Redis is set, and its size is not: give its maxmemory by --store")
	case (config.Folder != "" || config.S3 != "") && c.Store == 0:
		return z, errors.New("a folder or bucket is set, and its size is not: give its bytes by --store, or all")
	case config.Disk != "":
		z.Disk = config.DiskSize
	}
	if object := int64(c.Object); c.Trace == "" && object > z.Memory {
		return z, fmt.Errorf("an object has %s, and a level of memory %s: raise size", sizes.Text(object), sizes.Text(z.Memory))
	}
	return z, nil
}

// calculate returns the plan of a load.
func (c servePlan) calculate(z sizing.Sizes) (sizing.Plan, error) {
	if c.Trace == "" {
		s := sizing.Shape{Objects: c.Objects, Zipf: c.Zipf, Once: c.Once, Bytes: int64(c.Object)}
		return sizing.PlanShape(s, z), nil
	}
	f, err := os.Open(c.Trace)
	if err != nil {
		return sizing.Plan{}, err
	}
	defer f.Close()
	t, err := sizing.ReadTrace(f, int64(c.Object), c.Chain)
	if err != nil {
		return sizing.Plan{}, fmt.Errorf("%s: %w", c.Trace, err)
	}
	t.Spread(c.Hosts, rand.New(rand.NewPCG(1, 1)))
	return sizing.PlanTrace(t, z), nil
}

// Run prints a plan.
func (c servePlan) Run(parent *serveCommand) error {
	if err := c.check(); err != nil {
		return statusError{err, badCommandLine}
	}
	config, err := parent.load()
	if err != nil {
		return err
	}
	z, err := c.sizes(config)
	if err != nil {
		return err
	}
	p, err := c.calculate(z)
	if err != nil {
		return err
	}
	out := c.report(p, z)
	if c.JSON {
		return writeJSON(os.Stdout, out)
	}
	return out.write(os.Stdout)
}

// plan is what --json prints.
type plan struct {
	Hosts    int         `json:"hosts"`
	Rate     float64     `json:"rate"`     // requests a second
	Lookups  float64     `json:"lookups"`  // a second
	Levels   []planLevel `json:"levels"`   // fastest first
	Computed float64     `json:"computed"` // objects a second that no level has
	Share    float64     `json:"computed_share"`
	Links    []planLink  `json:"links"`
	// Seconds of computing for each second, of all hosts: with these levels, and with none. Null if --cost is not known.
	Computing *float64 `json:"computing"`
	Without   *float64 `json:"computing_without"`
}

// planLevel is a level of each host, or the store.
type planLevel struct {
	Level string  `json:"level"`
	Bytes int64   `json:"bytes"`    // of each host, and of the store; -1 is no bound
	Rate  float64 `json:"hit_rate"` // of the look-ups that come to it
	Share float64 `json:"share"`    // of all look-ups
	Hits  float64 `json:"hits"`     // a second, of all hosts
}

// planLink is one direction of a link.
type planLink struct {
	Link  string   `json:"link"`
	Bytes float64  `json:"bytes_per_second"`
	Load  *float64 `json:"load"` // null if the rate of the link is not known
}

// report returns what a plan means for each second.
func (c servePlan) report(p sizing.Plan, z sizing.Sizes) plan {
	lookups := c.Rate * p.PerRequest
	computed := p.Found[sizing.Nowhere]
	out := plan{Hosts: c.Hosts, Rate: c.Rate, Lookups: lookups, Computed: computed.Share * lookups, Share: computed.Share}
	left := 1.0
	level := func(name string, bytes int64, at sizing.Found) {
		if bytes == 0 {
			return
		}
		share := p.Found[at].Share
		l := planLevel{Level: name, Bytes: bytes, Share: share, Hits: share * lookups}
		if left > 0 {
			l.Rate = min(share/left, 1)
		}
		left -= share
		out.Levels = append(out.Levels, l)
	}
	level("memory", z.Memory, sizing.InMemory)
	level("disk", z.Disk, sizing.OnDisk)
	level("store", z.Store, sizing.InStore)

	link := func(name string, bytes float64, carries linkOption) {
		l := planLink{Link: name, Bytes: bytes}
		if carries > 0 {
			load := bytes / float64(carries)
			l.Load = &load
		}
		out.Links = append(out.Links, l)
	}
	out.Links = []planLink{}
	all, host := lookups, lookups/float64(c.Hosts)
	fetched := p.Found[sizing.InStore].Bytes
	if z.Disk > 0 {
		link("disk of a host, read", host*p.Found[sizing.OnDisk].Bytes, 0)
		link("disk of a host, written", host*(fetched+computed.Bytes), 0)
	}
	if z.Store != 0 {
		link("host, from the store", host*fetched, c.HostLink)
		link("host, to the store", host*computed.Bytes, c.HostLink)
		link("store, to all hosts", all*fetched, c.StoreLink)
		link("store, from all hosts", all*computed.Bytes, c.StoreLink)
	}
	if c.Cost > 0 {
		with, without := out.Computed*c.Cost.Seconds(), lookups*c.Cost.Seconds()
		out.Computing, out.Without = &with, &without
	}
	return out
}

// write prints it for people.
func (p plan) write(to io.Writer) error {
	w := newTable(to, "LEVEL", "ROOM", "HIT RATE", "OF ALL", "HITS/S")
	for _, l := range p.Levels {
		room := size(l.Bytes) + " a host"
		switch {
		case l.Bytes == sizing.Unbounded:
			room = "all"
		case l.Level == "store":
			room = size(l.Bytes)
		}
		w.row(l.Level, room, percent(l.Rate), percent(l.Share), threeDigits(l.Hits))
	}
	w.row("computed", "-", "-", percent(p.Share), threeDigits(p.Computed))
	if err := w.flush(); err != nil {
		return err
	}
	if len(p.Links) > 0 {
		fmt.Fprintln(to)
		w = newTable(to, "LINK", "EACH SECOND", "LOAD")
		for _, l := range p.Links {
			load := "?"
			switch {
			case strings.HasPrefix(l.Link, "disk"):
				load = "-"
			case l.Load != nil:
				load = percent(*l.Load)
			}
			w.row(l.Link, size(int64(l.Bytes)), load)
		}
		if err := w.flush(); err != nil {
			return err
		}
		for _, l := range p.Links {
			if l.Load != nil && *l.Load >= 1 {
				fmt.Fprintf(to, "too slow: %s: it would have to carry %s times what it does\n", l.Link, threeDigits(*l.Load))
			}
		}
	}
	if p.Computing == nil {
		return nil
	}
	_, err := fmt.Fprintf(to, "\ncomputing: %s s each second, and %s s without levels\n", threeDigits(*p.Computing), threeDigits(*p.Without))
	return err
}

// threeDigits writes a number with three digits.
func threeDigits(n float64) string {
	if n >= 1000 {
		return fmt.Sprintf("%.0f", n)
	}
	return fmt.Sprintf("%.3g", n)
}
