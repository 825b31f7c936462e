package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/ringcache/ringcache/internal/sizes"
	"github.com/ringcache/ringcache/internal/terminal"
	"github.com/ringcache/ringcache/objstore/check"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/segment"
)

type checkCommand struct {
	Name    string   `arg:"" predict:"segment" help:"Name of the segment."`
	At      []handle `placeholder:"ADDRESS:ID" help:"Check the chunk of this handle, too. Separate several by commas, or repeat the flag."`
	Size    int      `help:"Bytes of the ring. Without it they follow from the size of the segment."`
	Release string   `help:"The vLLM release that wrote it. Without it the sidecar's, or the newest."`
	Dir     string   `help:"Folder of shared memory, /dev/shm if empty."`
	JSON    bool     `name:"json" help:"Print one JSON object."`
}

// handle is an address and an id as people write it.
type handle serde.Address

// UnmarshalText reads ADDRESS:ID.
func (h *handle) UnmarshalText(text []byte) error {
	var rest string
	n, err := fmt.Sscanf(string(text)+" end", "%d:%d %s", &h.Address, &h.ID, &rest)
	if err != nil || n != 3 || rest != "end" || h.ID >= shmring.IDLimit {
		return fmt.Errorf("%q is not a handle: write it as ADDRESS:ID, such as 4096:17", text)
	}
	return nil
}

// Help is the end of ringcache check --help.
func (checkCommand) Help() string {
	return `It only reads, and a writer and its readers may go on meanwhile. Of a pool every object is checked. Where the
chunks of a ring are is in the memory of the process that writes it, so of a fifo, and of a foreign segment
(one that vLLM made, without a sidecar), only the chunks that --at names are.

Each line is a file, an offset in it, what is wrong, what it must be, and what it is. The last line is a
summary.

The exit status is 0 if everything that was looked at is right, 1 if something is wrong or nothing could be
looked at, and 80 if the command line is wrong.`
}

// Run checks a segment and prints what is wrong.
func (c checkCommand) Run() error {
	o := check.Options{Dir: c.Dir, RingSize: c.Size}
	for _, h := range c.At {
		o.Handles = append(o.Handles, serde.Address(h))
	}
	if c.Release != "" {
		g, err := pycompat.Lookup(c.Release)
		if err != nil {
			return err
		}
		o.Generation = g
	}
	view := newProgress("checking")
	o.Progress = view.show
	r, err := check.Segment(c.Name, o)
	view.end()
	if errors.Is(err, segment.ErrForeign) {
		return fmt.Errorf("%w: see --at", err)
	}
	if err != nil {
		return err
	}
	if c.JSON {
		err = writeJSON(os.Stdout, r)
	} else {
		err = printReport(os.Stdout, r)
	}
	if err == nil && len(r.Findings) > 0 {
		err = fmt.Errorf("%s: %d findings", c.Name, len(r.Findings))
	}
	return err
}

func printReport(w io.Writer, r *check.Report) error {
	for _, f := range r.Findings {
		if _, err := fmt.Fprintln(w, terminal.Lines(f.String())); err != nil {
			return err
		}
	}
	state := "no writer"
	switch {
	case r.Alive:
		state = fmt.Sprintf("its writer (pid %d) lives", r.PID)
	case r.Policy == "foreign":
		state = "without a sidecar"
	}
	if r.Policy == "fifo" && r.Chunks == 0 && len(r.Findings) == 0 {
		if _, err := fmt.Fprintln(w,
			"where the chunks of a fifo begin is in the memory of its writer; --at ADDRESS:ID names one"); err != nil {
			return err
		}
	}
	readers := fmt.Sprintf("%d reader slots taken", r.Readers)
	if r.DeadReaders > 0 {
		readers += fmt.Sprintf(" (and %d by readers that died)", r.DeadReaders)
	}
	_, err := fmt.Fprintf(w, "%s: %s of %s, %s: %d chunks with %s checked, %d too busy to check, %s, %d findings\n",
		printable(r.Segment), r.Policy, printable(r.Format), state, r.Chunks, sizes.Text(r.Bytes),
		r.Busy, readers, len(r.Findings))
	return err
}
