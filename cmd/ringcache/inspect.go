package main

import (
	"cmp"
	"container/heap"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ringcache/ringcache/inspect"
	"github.com/ringcache/ringcache/internal/sizes"
	"github.com/ringcache/ringcache/internal/terminal"
	"github.com/ringcache/ringcache/pycompat"
)

// Exit statuses of inspect and map, for probes.
const (
	noWriter = 3
	damaged  = 4
)

// segmentArgs name a segment to look at.
type segmentArgs struct {
	Name    string `arg:"" predict:"segment" help:"Name of the segment, as ringcache ls prints it."`
	Dir     string `help:"Folder of shared memory, /dev/shm if empty."`
	Release string `help:"The vLLM release that wrote a segment without a sidecar. Else that is found out."`
}

// use opens the segment, and calls f.
func (a segmentArgs) use(f func(x *inspect.Segment) error) (err error) {
	o := inspect.Options{Dir: a.Dir}
	if a.Release != "" {
		if o.Generation, err = pycompat.Lookup(a.Release); err != nil {
			return err
		}
	}
	x, err := inspect.Open(a.Name, o)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no segment %s: ringcache ls lists them (%w)", printable(a.Name), err)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	return f(x)
}

// verdict is the error by which the exit status shows the state of a segment.
func verdict(s inspect.Summary) error {
	name := printable(s.Name)
	switch s.State {
	case inspect.Closed:
		return statusError{fmt.Errorf("%s has no writer: the last one has ended in order", name), noWriter}
	case inspect.Orphan:
		return statusError{fmt.Errorf("%s has no writer: the last one was killed; "+
			"start its service again, or remove it by ringcache sweep", name), noWriter}
	case inspect.Damaged:
		return statusError{fmt.Errorf("%s is damaged: %s", name, s.Problem), damaged}
	}
	return nil
}

type inspectCommand struct {
	segmentArgs
	Find  string `placeholder:"TEXT" help:"Only objects whose key has this text."`
	State string `enum:",evictable,in use,reserved,retired,unknown,damaged" default:"" help:"Objects of this state."`
	Sort  string `enum:"size,age,address,reads" default:"size" help:"Order of the objects in the table: ${enum}."`
	Limit int    `default:"20" help:"Most objects in the table; 0 is all, in the order of the segment's own table."`
	JSON  bool   `name:"json" help:"Print one JSON object, with all objects, in no order."`
}

// Help is the end of ringcache inspect --help.
func (inspectCommand) Help() string {
	return `It only reads: no lock is taken that a writer has or needs, and no slot of a reader.

STATE of an object: evictable, in use (a request, a lease or a reader needs it), reserved (it is being written),
retired (its key means another object by now), damaged, or unknown: of a ring, only its writer knows which chunks were
freed. READS are those by vLLM's workers, ISSUED the reads at which every handle that was given out is read. CHUNK is
what the object takes. HELD BY are the leases and readers that keep an object; the table of holders has what each keeps.

Exit status: 0 if the writer lives, or the segment is foreign, so that it can't be known; 3 if no process has the
writer's lock (the service is down); 4 if the segment is damaged; 1 if there is no such segment or it can't be read; 80
if the command line is wrong.`
}

// inspectHolder is a holder as --json prints it.
type inspectHolder struct {
	inspect.Holder
	Seconds int64 `json:"seconds"` // until the end of a lease, 0 that it has passed, -1 never
}

// Run shows a segment.
func (c inspectCommand) Run() error {
	return c.use(func(x *inspect.Segment) error {
		s, err := x.Summary()
		if err != nil {
			return err
		}
		holders, holdersErr := x.Holders()
		if holdersErr != nil && s.Problem == "" {
			s.Problem = holdersErr.Error()
		}
		if c.JSON {
			err = c.printJSON(os.Stdout, x, s, holders)
		} else {
			err = c.print(os.Stdout, x, s, holders)
		}
		return cmp.Or(err, verdict(s))
	})
}

// wants reports whether an object is asked for.
func (c inspectCommand) wants(o inspect.Object) bool {
	return strings.Contains(o.Key, c.Find) && (c.State == "" || o.State == inspect.State(c.State))
}

// printJSON writes the objects one by one: there may be many.
func (c inspectCommand) printJSON(to io.Writer, x *inspect.Segment, s inspect.Summary, holders []inspect.Holder) error {
	head := struct {
		Segment lsSegment       `json:"segment"`
		Holders []inspectHolder `json:"holders"`
	}{lsSegmentOf(s), []inspectHolder{}}
	for _, h := range holders {
		head.Holders = append(head.Holders, inspectHolder{h, secondsUntil(h)})
	}
	b, err := json.Marshal(head)
	if err != nil {
		return err
	}
	w := &blockWriter{w: terminal.Writer(to)}
	w.write(b[:len(b)-1])
	w.write([]byte(`,"objects":[`))
	separator := "\n"
	for o := range x.Objects() {
		if !c.wants(o) {
			continue
		}
		if b, err = json.Marshal(o); err != nil {
			return err
		}
		w.write([]byte(separator))
		w.write(b)
		separator = ",\n"
	}
	w.write([]byte("]}\n"))
	return w.flush()
}

// blockWriter collects what is written. terminal.Writer wants whole characters, which each write has.
type blockWriter struct {
	w   io.Writer
	b   []byte
	err error
}

func (w *blockWriter) write(b []byte) {
	if w.b = append(w.b, b...); len(w.b) >= 64<<10 {
		_ = w.flush()
	}
}

func (w *blockWriter) flush() error {
	if w.err == nil {
		_, w.err = w.w.Write(w.b)
	}
	w.b = w.b[:0]
	return w.err
}

func secondsUntil(h inspect.Holder) int64 {
	if h.Kind != "lease" || h.Until.IsZero() {
		return -1
	}
	return int64(max(time.Until(h.Until), 0) / time.Second)
}

func (c inspectCommand) print(to io.Writer, x *inspect.Segment, s inspect.Summary, holders []inspect.Holder) error {
	printSummary(to, s)
	if len(holders) > 0 {
		fmt.Fprintln(to)
		w := newTable(to, "HOLDER", "CLIENT", "PID", "LEFT", "PINNED", "RESERVED", "BYTES")
		for _, h := range holders {
			left := "-"
			switch {
			case h.Kind == "lease":
				left = timeLeft(secondsUntil(h))
			case h.Dead:
				left = "dead"
			}
			w.row(printable(h.String()), orNone(h.Client), h.PID, left, h.Pinned, h.Reserved, size(h.Bytes))
		}
		if err := w.flush(); err != nil {
			return err
		}
	}
	fmt.Fprintln(to)
	w := newTable(to, "OBJECT", "STATE", "SIZE", "CHUNK", "READS", "ISSUED", "AGE", "ADDRESS", "ID", "HELD BY")
	row := func(o inspect.Object) {
		state := string(o.State)
		if o.Problem != "" {
			state += ", " + terminal.Text(o.Problem)
		}
		w.row(orNone(o.Key), state, size(o.Size), size(o.Chunk), unlessNone(o.Reads), unlessNone(o.Issued),
			age(o.Stored), o.Address, o.ID, orNone(strings.Join(o.HeldBy, ", ")))
	}
	var bytes int64
	n, shown := 0, 0
	top := &objectHeap{less: orders[c.Sort]}
	for o := range x.Objects() {
		if !c.wants(o) {
			continue
		}
		n++
		bytes += max(o.Chunk, 0)
		switch {
		case c.Limit <= 0:
			row(o)
		case top.Len() < c.Limit:
			heap.Push(top, o)
		case top.less(o, top.all[0]):
			top.all[0] = o
			heap.Fix(top, 0)
		}
	}
	slices.SortFunc(top.all, func(a, b inspect.Object) int {
		switch {
		case top.less(a, b):
			return -1
		case top.less(b, a):
			return 1
		}
		return cmp.Compare(a.Address, b.Address)
	})
	for _, o := range top.all {
		row(o)
	}
	if shown = top.Len(); c.Limit <= 0 {
		shown = n
	}
	if n > 0 {
		if err := w.flush(); err != nil {
			return err
		}
	}
	more := ""
	if shown < n {
		more = fmt.Sprintf("; %d are shown, --limit 0 shows all", shown)
	}
	_, err := fmt.Fprintf(to, "%d objects in chunks of %s%s\n", n, sizes.Text(bytes), more)
	return err
}

// unlessNone is a count that may not apply.
func unlessNone(n int64) string {
	if n < 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

// orders say which object stands first.
var orders = map[string]func(a, b inspect.Object) bool{
	"size":    func(a, b inspect.Object) bool { return a.Size > b.Size },
	"age":     func(a, b inspect.Object) bool { return a.Stored.Before(b.Stored) },
	"address": func(a, b inspect.Object) bool { return a.Address < b.Address },
	"reads":   func(a, b inspect.Object) bool { return a.Reads > b.Reads },
}

// objectHeap has the objects that come first in an order, the last of them on top.
type objectHeap struct {
	all  []inspect.Object
	less func(a, b inspect.Object) bool
}

func (h *objectHeap) Len() int           { return len(h.all) }
func (h *objectHeap) Less(i, j int) bool { return h.less(h.all[j], h.all[i]) }
func (h *objectHeap) Swap(i, j int)      { h.all[i], h.all[j] = h.all[j], h.all[i] }
func (h *objectHeap) Push(x any)         { h.all = append(h.all, x.(inspect.Object)) }
func (h *objectHeap) Pop() any {
	last := h.all[len(h.all)-1]
	h.all = h.all[:len(h.all)-1]
	return last
}

// printSummary writes some lines about a segment.
func printSummary(to io.Writer, s inspect.Summary) {
	state := string(s.State)
	if hasColour(to) {
		state = paint(state, cmp.Or(colourOf(state), bold))
	}
	owner := ""
	if s.Owner != "" {
		owner = ", owner " + printable(s.Owner)
	}
	policy := s.Policy
	if s.State == inspect.Foreign {
		policy = "a ring as those" // which have the same headers
	}
	fmt.Fprintf(to, "%s: %s, %s of %s%s, pid %s, made %s ago\n", printable(s.Name), state, policy,
		cmp.Or(printable(s.Format), "an unknown format"), owner, pidsOf(s), age(s.Made))
	ring := fmt.Sprintf("ring of %s behind %s bytes, %s used", size(s.Size), count(s.DataOffset), percent(s.Fill()))
	if s.MaxObjects >= 0 {
		ring += fmt.Sprintf("; %s of at most %d objects, %s in use, %s entries damaged", count(s.Objects), s.MaxObjects,
			count(s.InUse), count(s.Damaged))
	} else {
		ring += fmt.Sprintf("; %s chunks", count(s.Objects))
	}
	fmt.Fprintln(to, ring)
	if s.Epoch > 0 {
		fmt.Fprintf(to,
			"readers %s of %s slots, %s died with one; leases %s; writers so far %d, next id %s; all files %s\n",
			count(s.Readers), count(s.ReaderSlots), count(s.DeadReaders), count(s.Leases), s.Epoch,
			count(s.NextID), size(s.Bytes))
	}
	if s.Problem != "" {
		fmt.Fprintln(to, terminal.Lines(s.Problem))
	}
}
