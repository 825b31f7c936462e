//go:build linux

// Command bench times the calls of LMCache's connector to `ringcache serve` and to LMCache's own servers, in one run
// and in turns, with one client: package kvload. bench/README.md has how to run it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

type options struct {
	only    map[string]bool // names of servers; empty is all
	seconds float64         // of a round
	rounds  int
	largest int // chunks in the store of ours
	out     string
	native  string
}

func main() {
	var o options
	var only string
	flag.StringVar(&only, "only", "", "the servers, with commas; all if empty")
	flag.Float64Var(&o.seconds, "seconds", 1, "seconds of a round")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds, in which servers take turns")
	flag.IntVar(&o.largest, "largest", 1_000_000, "the most chunks that are in the store of ringcache")
	flag.StringVar(&o.out, "out", "", "folder for kv.md; without it the table is printed")
	flag.StringVar(&o.native, "native", "", "folder with the package pygrpc-native, which the server of 0.5.7 in mode native needs; without it that server is left out")
	flag.Parse()
	if flag.Arg(0) == "bare" { // started by this program itself
		fmt.Fprintln(os.Stderr, bare(flag.Arg(1), flag.Arg(2), flag.Arg(3)))
		os.Exit(1)
	}
	if only != "" {
		o.only = map[string]bool{}
		for _, name := range strings.Split(only, ",") {
			o.only[name] = true
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	b, err := newBed(ctx, o)
	if err != nil {
		return err
	}
	defer b.remove()
	r := &results{sessions: []int{1, 16, 64}, counts: []int{1000, 10_000, 100_000}}
	if o.largest > 100_000 {
		r.counts = append(r.counts, o.largest)
	}
	for _, part := range []func(context.Context, *bed, *results) error{calls, lookups, kills} {
		if err := part(ctx, b, r); err != nil {
			return err
		}
	}
	if o.out == "" {
		r.write(os.Stdout, b)
		return nil
	}
	f, err := os.Create(filepath.Join(o.out, "kv.md"))
	if err != nil {
		return err
	}
	r.write(f, b)
	return f.Close()
}

func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format(time.TimeOnly)+" "+format+"\n", args...)
}

func itoa[T int | int64](n T) string { return strconv.FormatInt(int64(n), 10) }
