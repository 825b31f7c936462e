package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/ringcache/ringcache/daemon"
	"github.com/ringcache/ringcache/shmring/segment"
)

type sweepCommand struct {
	Prefix   string `arg:"" help:"Beginning of the names of the segments."`
	Owner    string `help:"Only segments with this owner label. Without --owner and --any-owner: only those without a label."`
	AnyOwner bool   `help:"Segments with any label or none, and those whose sidecar is damaged."`
	Dir      string `help:"Folder of shared memory, /dev/shm if empty."`
	Socket   string `type:"path" placeholder:"PATH" help:"The socket of a daemon, too: one that a killed daemon left."`
	JSON     bool   `name:"json" help:"Print one JSON object."`
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
	var errs []error
	list := sweepList{Segments: []sweptSegment{}}
	for _, s := range found {
		list.Segments = append(list.Segments, sweptSegment{s.Name, s.Owner, s.PID, s.Bytes, state(s)})
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
		list.Socket = &sweptSocket{c.Socket, state}
	}
	note := ""
	if !c.AnyOwner {
		if note, err = c.hidden(o, found, &list); err != nil {
			errs = append(errs, err)
		}
	}
	if c.JSON {
		return errors.Join(append(errs, writeJSON(os.Stdout, list))...)
	}
	errs = append(errs, list.print(os.Stdout))
	fmt.Print(note)
	return errors.Join(errs...)
}

// sweepList is what --json prints.
type sweepList struct {
	Segments []sweptSegment `json:"segments"`
	Socket   *sweptSocket   `json:"socket,omitempty"`
	Hidden   int            `json:"hidden"` // segments that are not shown because of their label
}

type sweptSegment struct {
	Name  string `json:"name"`
	Owner string `json:"owner"`
	PID   int    `json:"pid"`
	Bytes int64  `json:"bytes"`
	State string `json:"state"`
}

type sweptSocket struct {
	Path  string `json:"path"`
	State string `json:"state"`
}

func (l sweepList) print(to io.Writer) error {
	w := newTable(to, "SEGMENT", "OWNER", "PID", "BYTES", "STATE")
	for _, s := range l.Segments {
		w.row(printable(s.Name), orNone(s.Owner), s.PID, size(s.Bytes), s.State)
	}
	if l.Socket != nil {
		w.row(printable(l.Socket.Path), "-", "-", "-", l.Socket.State)
	}
	return w.flush()
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

// hidden returns a line about the segments that are not shown because of their label, and counts them in the list. If
// there are no others, and no label was named, that is an error: a caller would take an empty list for no segments.
func (c sweepCommand) hidden(o segment.SweepOptions, shown []segment.Swept, list *sweepList) (string, error) {
	o.Owner, o.AnyOwner, o.Remove = "", true, false
	all, err := segment.Sweep(o)
	if err != nil {
		return "", err
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
	list.Hidden = hidden
	if hidden == 0 {
		return "", nil
	}
	text := fmt.Sprintf("%d segments with another owner label or a damaged sidecar are not shown, %d of them without a living writer: use --owner LABEL or --any-owner", hidden, orphans)
	if c.Owner == "" && len(shown) == 0 {
		return "", errors.New(text)
	}
	return text + "\n", nil
}
