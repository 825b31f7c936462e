package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/ringcache/ringcache/inspect"
	"github.com/ringcache/ringcache/internal/shmfile"
	"github.com/ringcache/ringcache/internal/terminal"
)

type lsCommand struct {
	Dir  string `help:"Folder of shared memory, /dev/shm if empty."`
	JSON bool   `name:"json" help:"Print one JSON list."`
}

// Help is the end of ringcache ls --help.
func (lsCommand) Help() string {
	return `STATE is alive (a process has the writer's lock), closed (its writer has ended in order, and left its
objects for the next one), orphan (its writer was killed), foreign (a ring without a sidecar, such as vLLM's own),
damaged, or denied (another user's, or not to be trusted). PID is the last writer's by its own account; of a foreign
segment the processes that have it open. How full a ring is, only its writer knows: of a fifo and of a foreign segment
FILL is ?, and OBJECTS are the chunks that its headers show. AGE is since the file was made.

The owner of a daemon's segment is "ringcache serve". What is left of a killed writer: ringcache sweep.

The exit status is 0 if the folder could be read, also without segments, 1 if not, and 80 if the command line is wrong.`
}

// lsSegment is what --json prints of a segment.
type lsSegment struct {
	inspect.Summary
	Fill    float64 `json:"fill"`    // 0 to 1, -1 is unknown
	Seconds int64   `json:"seconds"` // since it was made, -1 is unknown
}

func lsSegmentOf(s inspect.Summary) lsSegment { return lsSegment{s, s.Fill(), secondsSince(s.Made)} }

// Run lists segments.
func (c lsCommand) Run() error {
	found, err := inspect.List(inspect.Options{Dir: c.Dir})
	if err != nil {
		return err
	}
	if c.JSON {
		all := make([]lsSegment, 0, len(found))
		for _, s := range found {
			all = append(all, lsSegmentOf(s))
		}
		return writeJSON(os.Stdout, all)
	}
	return c.print(os.Stdout, found)
}

func (c lsCommand) print(to io.Writer, found []inspect.Summary) error {
	if len(found) == 0 {
		dir := c.Dir
		if dir == "" {
			dir = shmfile.DefaultDir
		}
		_, err := fmt.Fprintf(to, "no segments in %s\n", printable(dir))
		return err
	}
	w := newTable(to, "SEGMENT", "STATE", "OWNER", "PID", "SIZE", "FILL", "OBJECTS", "READERS", "LEASES", "AGE")
	for _, s := range found {
		w.row(printable(s.Name), s.State, orNone(s.Owner), pidsOf(s), size(s.Size), percent(s.Fill()), count(s.Objects),
			count(s.Readers), count(s.Leases), age(s.Made))
	}
	if err := w.flush(); err != nil {
		return err
	}
	for _, s := range found {
		if s.Problem != "" {
			if _, err := fmt.Fprintf(to, "%s: %s\n", printable(s.Name), terminal.Lines(s.Problem)); err != nil {
				return err
			}
		}
	}
	return nil
}

// pidsOf returns who writes a segment, or has it open.
func pidsOf(s inspect.Summary) string {
	if s.State != inspect.Foreign {
		if s.PID == 0 {
			return "?"
		}
		return fmt.Sprint(s.PID)
	}
	const most = 3
	var pids []string
	for i, pid := range s.OpenBy {
		if i == most {
			pids = append(pids, fmt.Sprintf("+%d", len(s.OpenBy)-most))
			break
		}
		pids = append(pids, fmt.Sprint(pid))
	}
	if len(pids) == 0 {
		return "?"
	}
	return strings.Join(pids, ",")
}
