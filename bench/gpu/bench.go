package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/ringcache/ringcache/pin/cuda"
)

// bench is one run of the program.
type bench struct {
	options
	driver *cuda.Driver
	report *report
}

func run(ctx context.Context, o options) (err error) {
	if o.Child != "" {
		return runChild(o)
	}
	if o.Quick {
		o.quick()
	}
	if o.Plots && o.Out == "" {
		return errors.New("--plots needs a folder: --out")
	}
	driver, err := cuda.Open(o.Device, cuda.Options{Library: o.Library})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, driver.Close()) }()
	b := &bench{o, driver, newReport(o)}
	b.describeDevice(ctx)
	for _, p := range parts {
		if len(o.Only) > 0 && !slices.Contains(o.Only, p.name) {
			b.report.leaveOut(p.name, "not asked for (--only)")
		} else if ctx.Err() != nil {
			b.report.leaveOut(p.name, "interrupted")
		} else if err := p.measure(b, ctx); err != nil {
			b.report.Failed = append(b.report.Failed, leftOut{p.name, err.Error()})
		}
		b.report.Seconds = time.Since(b.report.Began).Seconds()
		if err := b.report.write(o.Out, o.Plots); err != nil { // now: what was measured stays if a later part is killed
			return err
		}
	}
	b.progress("")
	b.report.print(os.Stdout)
	if n := len(b.report.Failed); n > 0 {
		return fmt.Errorf("%d of %d parts failed", n, len(parts))
	}
	return ctx.Err()
}

// inTurns measures everything once in each repetition. Every second repetition goes backwards, so that
// nothing is always measured after the same neighbour. What was measured before an error is worth reporting.
func inTurns[T any](ctx context.Context, b *bench, all []T, measure func(T) error) error {
	for repetition := range b.Repetitions {
		order := slices.Clone(all)
		if repetition%2 == 1 {
			slices.Reverse(order)
		}
		for i, x := range order {
			if err := ctx.Err(); err != nil {
				return err
			}
			b.progress("repetition %d of %d: %d of %d: %+v", repetition+1, b.Repetitions, i+1, len(order), x)
			if err := measure(x); err != nil {
				return fmt.Errorf("%+v: %w", x, err)
			}
		}
	}
	return nil
}

// progress writes to a terminal what goes on, in one line that is overwritten.
func (b *bench) progress(format string, args ...any) {
	if info, err := os.Stderr.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return
	}
	fmt.Fprintf(os.Stderr, "\r\033[K"+format, args...)
}
