package main

import (
	"errors"
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/ringcache/ringcache/shmring"
)

type sweepCommand struct {
	Prefix   string `arg:"" help:"Beginning of the names of the segments."`
	Owner    string `help:"Only segments with this label."`
	AnyOwner bool   `help:"Whatever the label."`
	Dir      string `help:"Folder of shared memory, /dev/shm if empty."`
	Remove   bool   `help:"Remove segments whose writer is gone. Without it they are listed."`
}

// Run lists segments and removes those that are orphans.
func (c sweepCommand) Run() error {
	found, err := shmring.Sweep(shmring.SweepOptions{Prefix: c.Prefix, Owner: c.Owner, AnyOwner: c.AnyOwner, Remove: c.Remove, Dir: c.Dir})
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SEGMENT\tOWNER\tPID\tBYTES\tSTATE")
	var errs []error
	for _, s := range found {
		state := "orphan"
		switch {
		case s.Err != nil:
			state = "error"
			errs = append(errs, fmt.Errorf("%s: %w", s.Name, s.Err))
		case s.Alive:
			state = "alive"
		case s.Removed:
			state = "removed"
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\n", s.Name, s.Owner, s.PID, s.Bytes, state)
	}
	return errors.Join(append(errs, w.Flush())...)
}
