package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// print writes the report as tables.
func (r *report) print(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	m := r.Machine
	fmt.Fprintf(t, "%s\n\n", r.Notice)
	fmt.Fprintf(t, "device\t%s\n", m.Device)
	for _, a := range m.Attributes {
		fmt.Fprintf(t, "attribute %d: %s\t%d\n", a.Number, a.Meaning, a.Value)
	}
	for _, about := range []map[string]string{m.GPU, m.Link, m.Versions} {
		for _, k := range sortedKeys(about) {
			fmt.Fprintf(t, "%s\t%s\n", k, about[k])
		}
	}
	fmt.Fprintf(t, "machine\t%s, %d CPUs, Linux %s, %s of shared memory\n", m.CPU, m.CPUs, m.Kernel,
		bytesText(int(m.SharedMem)))
	r.printCopies(t)
	r.printPinning(t)
	if c := r.Context; c != nil {
		fmt.Fprintf(t, "\na process that only registers\t%d MiB of the device's memory\n", c.Cost)
	}
	if c := r.Correct; c != nil {
		fmt.Fprintf(t, "\ncorrectness\t%d copies of %s in %.1f s while a writer reused the slots: %d damaged\n",
			c.Copies, bytesText(c.Size), c.Seconds, c.Damaged)
	}
	if c := r.Control; c != nil {
		fmt.Fprintf(t, "negative control\t%d of %d copies of %s whose slot was reused too soon were caught\n",
			c.Caught, c.Tries, bytesText(c.Size))
	}
	printLeftOut(t, "left out", r.LeftOut)
	printLeftOut(t, "FAILED", r.Failed)
	fmt.Fprintf(t, "\n%.0f s. %s\n", r.Seconds, r.Notice)
	_ = t.Flush()
}

func (r *report) printCopies(w io.Writer) {
	if len(r.Copies) > 0 {
		fmt.Fprint(w, "\nbytes\toffset\tat once\tarm\tGB/s\tmedian µs\tp99 µs\tsubmit µs\tspread\n")
	}
	for _, c := range r.Copies {
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%.2f\t%.1f\t%.1f\t%.1f\t%.1f %%\n", bytesText(c.Size), c.Offset, c.Batch, c.Arm,
			c.Bandwidth, c.Total.Median/1e3, c.Total.P99/1e3, c.Submit.Median/1e3, 100*c.Total.Spread)
	}
	if len(r.Derived) > 0 {
		fmt.Fprint(w, "\nbytes\tfirst\tsecond\ttimes as fast\tgoal\tverdict\tnoise\n")
	}
	for _, d := range r.Derived {
		goal := "-"
		if d.Goal > 0 {
			goal = fmt.Sprintf(">= %.2f", d.Goal)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%.2f\t%s\t%s\t%.1f %%\n", bytesText(d.Size), d.First, d.Second, d.Times, goal,
			d.Verdict, 100*d.Noise)
	}
	if len(r.Overlap) > 0 {
		fmt.Fprint(w, "\nbytes\tcopies beside a multiplication\tcopies ms\tmultiplication ms\tboth ms\tboth / longer\tCPU ms\n")
	}
	for _, o := range r.Overlap {
		fmt.Fprintf(w, "%s\t%s\t%.1f\t%.1f\t%.1f\t%.2f\t%.1f\n", bytesText(o.Size), o.Arm, o.Copies.Median/1e6,
			o.Compute.Median/1e6, o.Both.Median/1e6, o.Ratio, o.CPU.Median/1e6)
	}
}

func (r *report) printPinning(w io.Writer) {
	if len(r.Pinning) > 0 {
		fmt.Fprint(w, "\nbytes\tpages before\tcalls of\tregister ms\ts/GiB\tunregister ms\tspread\n")
	}
	for _, p := range r.Pinning {
		fmt.Fprintf(w, "%s\t%s\t%s\t%.2f\t%.4f\t%.2f\t%.1f %%\n", bytesText(p.Size), p.State, bytesText(p.Call),
			p.Register.Median/1e6, p.PerGiB, p.Unregister.Median/1e6, 100*p.Register.Spread)
	}
	if len(r.Together) > 0 {
		fmt.Fprint(w, "\nbytes\tprocesses\tlock\tregister ms, each\twait for the lock ms\tregistrations by code\n")
	}
	for _, t := range r.Together {
		var codes []string
		for _, code := range sortedKeys(t.Codes) {
			codes = append(codes, fmt.Sprintf("%d of code %d", t.Codes[code], code))
		}
		fmt.Fprintf(w, "%s\t%d\t%t\t%.2f\t%.2f\t%s\n", bytesText(t.Size), t.Processes, t.Lock, t.Register.Median/1e6,
			t.Wait.Median/1e6, strings.Join(codes, ", "))
	}
}

func printLeftOut(w io.Writer, title string, all []leftOut) {
	for i, l := range all {
		if i == 0 {
			fmt.Fprintf(w, "\n%s\n", title)
		}
		fmt.Fprintf(w, "  %s: %s\n", l.What, l.Reason)
	}
}
