package main

import (
	"errors"
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/ringcache/ringcache/daemon"
	"github.com/ringcache/ringcache/internal/terminal"
	"github.com/ringcache/ringcache/shmring/segment"
)

type sweepCommand struct {
	Prefix   string `arg:"" help:"Beginning of the names of the segments."`
	Owner    string `help:"Only segments with this owner label. Without --owner and --any-owner: only those without a label."`
	AnyOwner bool   `help:"Segments with any label or none, and those whose sidecar is damaged."`
	Dir      string `help:"Folder of shared memory, /dev/shm if empty."`
	Socket   string `type:"path" placeholder:"PATH" help:"The socket of a daemon, too: one that a killed daemon left."`
	Remove   bool   `help:"Remove segments whose writer has ended. Without it they are listed."`
}

// Help is the end of ringcache sweep --help.
func (sweepCommand) Help() string {
	return `Segments that another user made, and those without a sidecar, are never shown. Those with another owner label
are not shown either; their number is, and with neither --owner nor --any-owner it is an error if they are all
that there is.

The segment of ringcache serve has the owner label "ringcache serve", with objects that the next daemon takes
over: they are lost if it is removed. Its table of leases goes with it. Its socket is looked at if --socket
names it.

States: alive (a process holds its lock), closed (its writer has ended in order, and left its objects for the
next one), orphan (its writer was killed), damaged (an orphan whose sidecar can't be read), removed, error.
--remove removes all but those that are alive.

The exit status is 0 if everything that was asked for was done, and 1 otherwise.`
}

// Run lists segments, and with --remove removes those without a living writer.
func (c sweepCommand) Run() error {
	o := segment.SweepOptions{Prefix: c.Prefix, Owner: c.Owner, AnyOwner: c.AnyOwner, Remove: c.Remove, Dir: c.Dir}
	found, err := segment.Sweep(o)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	var errs []error
	fmt.Fprintln(w, "SEGMENT\tOWNER\tPID\tBYTES\tSTATE")
	for _, s := range found {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\n", terminal.Text(s.Name), terminal.Text(s.Owner), s.PID, s.Bytes, state(s))
		if s.Err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.Name, s.Err))
		}
	}
	if c.Socket != "" {
		state, err := daemon.SweepSocket(c.Socket, c.Remove)
		if err != nil {
			errs = append(errs, err)
			state = "error"
		}
		fmt.Fprintf(w, "%s\t\t\t\t%s\n", c.Socket, state)
	}
	errs = append(errs, w.Flush())
	if !c.AnyOwner {
		errs = append(errs, c.reportHidden(o, found))
	}
	return errors.Join(errs...)
}

func state(s segment.Swept) string {
	switch {
	case s.Alive:
		return "alive"
	case s.Removed && s.Damage != nil:
		return "damaged, removed"
	case s.Removed:
		return "removed"
	case s.Err != nil:
		return "error"
	case s.Damage != nil:
		return "damaged"
	case s.Closed:
		return "closed"
	}
	return "orphan"
}

// reportHidden reports how many segments are not shown because of their label. If there are no others, and no
// label was named, that is an error: a caller would take an empty list for no segments.
func (c sweepCommand) reportHidden(o segment.SweepOptions, shown []segment.Swept) error {
	o.Owner, o.AnyOwner, o.Remove = "", true, false
	all, err := segment.Sweep(o)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, s := range shown {
		seen[s.Name] = true
	}
	hidden, orphans := 0, 0
	for _, s := range all {
		if !seen[s.Name] {
			hidden++
			if !s.Alive {
				orphans++
			}
		}
	}
	if hidden == 0 {
		return nil
	}
	text := fmt.Sprintf("%d segments with another owner label or a damaged sidecar are not shown, %d of them without a living writer: use --owner LABEL or --any-owner", hidden, orphans)
	if c.Owner == "" && len(shown) == 0 {
		return errors.New(text)
	}
	_, err = fmt.Println(text)
	return err
}
