// Command compare times the jobs that users of a multimodal cache have, beside the peers that could do them:
// the real vLLM, queues, sockets, Redis, and the least that any implementation has to do. All peers of a case
// are measured in turns, in one run.
//
// It writes raw.json with every sample, table.md, and plots into a folder. ../../docs/performance.md
// describes the jobs.
package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
)

type options struct {
	Python   string        `help:"Interpreter of the interop environment. Without it the peers in Python are left out." json:"-"`
	Redis    string        `help:"Folder with the files of the package redis-server, or none." json:"-"`
	Disk     string        `help:"Folder for the files of the encoder's outputs, on the disk that is measured. Empty is that of temporary files." json:"-"`
	Scripts  string        `help:"Folder of the peers in Python." default:"compare/peer" type:"existingdir" json:"-"`
	Out      string        `help:"Folder for raw.json, table.md and the plots." json:"-"`
	From     string        `help:"Measure nothing: make table and plots from this raw.json." json:"-"`
	Only     []string      `help:"Experiments to run, all if empty: ${experiments}." enum:"${experiments}" json:"only,omitempty"`
	Smoke    bool          `help:"Few sizes and rounds, printed as ratios." json:"smoke"`
	Rounds   int           `help:"Rounds of every case." default:"20" json:"rounds"`
	Budget   time.Duration `help:"Time of one peer in one round." default:"20ms" json:"budget_ns"`
	ColdMiB  int           `name:"cold-mib" help:"Size of a cold ring in MiB." default:"512" json:"cold_mib"`
	LiveMax  int           `name:"live-max" help:"Most live objects." default:"1000000" json:"live_max"`
	Prefault int           `name:"prefault-mib" help:"Size of the segment that is prefaulted, in MiB." default:"8192" json:"prefault_mib"`

	Child string `hidden:"" help:"Receive from this socket, see shmipc.go." json:"-"`
}

// Validate is called by kong.
func (o *options) Validate() error {
	if o.Rounds < 1 || o.Budget <= 0 || o.ColdMiB < 1 || o.LiveMax < 1 || o.Prefault < 1 {
		return errors.New("rounds, times and sizes must be positive")
	}
	return nil
}

func main() {
	var o options
	k := kong.Parse(&o, kong.Description("The jobs of a multimodal cache, beside the peers that could do them."),
		kong.Vars{"experiments": experimentNames()})
	if o.Child != "" {
		k.FatalIfErrorf(receiveShmipc(o.Child))
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	k.FatalIfErrorf(err)
}

// run measures, unless there is a file to read, and reports. What was measured before an error is reported,
// too.
func run(ctx context.Context, o options) (err error) {
	if o.Smoke {
		o.Rounds, o.Budget, o.ColdMiB, o.LiveMax, o.Prefault = 5, 4*time.Millisecond, 64, 10_000, 256
	}
	record := &Record{Began: time.Now().UTC(), Options: o, LeftOut: []LeftOut{}}
	if o.From != "" {
		if record, err = readRecord(o.From); err != nil {
			return err
		}
	} else {
		err = record.measure(ctx, o)
	}
	return errors.Join(err, report(record, o.Out))
}

func (r *Record) measure(ctx context.Context, o options) error {
	r.Machine = thisMachine()
	env := newEnvironment(o)
	var failed error
	defer func() {
		r.Seconds, r.Machine.LoadAfter = time.Since(r.Began).Seconds(), loadAverage()
		maps.Copy(r.Machine.Versions, env.versions)
	}()
	for _, e := range experiments {
		if len(o.Only) > 0 && !slices.Contains(o.Only, e.name) {
			continue
		}
		run := runner{rounds: o.Rounds, budget: o.Budget, most: 1 << 20}
		if e.each { // every sample is kept
			run.most = 250
		}
		if e.rounds > 0 {
			run.rounds = min(run.rounds, e.rounds)
		}
		if e.slow > 0 {
			run.budget *= time.Duration(e.slow)
		}
		for _, c := range e.cases(o) {
			if ctx.Err() != nil {
				return errors.Join(failed, env.Close(), ctx.Err())
			}
			fmt.Fprintf(os.Stderr, "%s: %s\n", c.Job, caseText(c))
			results, out, err := run.measure(c, e.jobs(env, c))
			r.Results = append(r.Results, results...)
			r.leaveOut(out)
			failed = errors.Join(failed, err)
		}
	}
	return errors.Join(failed, env.Close())
}

// report writes the files, or prints the table where there is no folder.
func report(r *Record, folder string) error {
	if folder == "" {
		_, err := os.Stdout.Write(table(r))
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	err := errors.Join(r.write(filepath.Join(folder, "raw.json")),
		os.WriteFile(filepath.Join(folder, "table.md"), table(r), 0o644))
	for name, c := range charts(r) {
		err = errors.Join(err, os.WriteFile(filepath.Join(folder, name+".svg"), c.SVG(), 0o644))
	}
	return err
}
