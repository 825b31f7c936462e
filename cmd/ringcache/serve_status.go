package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/ringcache/ringcache/daemon/client"
	"github.com/ringcache/ringcache/daemon/wire"
	"github.com/ringcache/ringcache/internal/terminal"
)

type serveStatus struct {
	JSON     bool          `name:"json" help:"Print one JSON object; with --watch one line each time."`
	Timeout  time.Duration `default:"10s" help:"Longest wait for the daemon."`
	Watch    bool          `short:"w" help:"Print it again and again, until interrupted, also while no daemon answers."`
	Interval time.Duration `default:"2s" help:"Time between two of --watch."`
}

// Help is the end of ringcache serve status --help.
func (serveStatus) Help() string {
	return `Of all settings only --socket matters. HELD are bytes that can't be evicted now, BACKLOG objects that wait to
be written to a level. HITS and MISSES are objects that clients asked for, STORED those that they published,
which were not there before: within the last five minutes, and since the start. A client is a session that has
a connection. CLIENT is what it calls itself, such as the engine and its role, and its counts are since it
came; at most 1024 are shown. A lease has the pid and the name of its client, and LEFT until its end: never,
or reserved if only what was reserved is left, which ends with its process. A lease that waits is from before
a restart of the daemon, and its client has not come back yet.

The exit status is 0 if a daemon answered, and 1 otherwise. A daemon that has too many clients to show more
than that has answered, but for --json.`
}

// status is what --json prints.
type status struct {
	Server  string        `json:"server"`
	Socket  string        `json:"socket"`
	Segment statusSegment `json:"segment"`
	Seconds int64         `json:"seconds"` // since its start
	Levels  []statusLevel `json:"levels"`  // fastest first

	Sessions int           `json:"sessions"`
	Fetches  int           `json:"fetches"` // objects that are being fetched into memory
	Backlog  int           `json:"backlog"` // objects that wait to be written to lower levels
	Clearing bool          `json:"clearing"`
	Leases   []statusLease `json:"leases"`

	Total   statusUse      `json:"total"`   // since the daemon's start
	Recent  statusUse      `json:"recent"`  // within the last minutes
	Clients []statusClient `json:"clients"` // that have a connection, without this one
}

// statusUse is what clients asked for within a time.
type statusUse struct {
	Seconds int64   `json:"seconds"`
	Hits    int64   `json:"hits"`
	Misses  int64   `json:"misses"`
	Stored  int64   `json:"stored"`
	Rate    float64 `json:"rate"` // of hits, 0 to 1; 0 without hits and misses
}

func useOf(u wire.Use) statusUse {
	s := statusUse{u.Seconds, u.Hits, u.Misses, u.Stored, 0}
	if asked := u.Hits + u.Misses; asked > 0 {
		s.Rate = float64(u.Hits) / float64(asked)
	}
	return s
}

// cells are those of a row.
func (u statusUse) cells() []any {
	return []any{time.Duration(u.Seconds) * time.Second, u.Hits, u.Misses, u.rate(), u.Stored}
}

func (u statusUse) rate() string {
	if u.Hits+u.Misses == 0 {
		return "-"
	}
	return percent(u.Rate)
}

type statusClient struct {
	Session string `json:"session"`
	Client  string `json:"client"`
	PID     int    `json:"pid"` // 0 is unknown
	Space   string `json:"space"`
	Seconds int64  `json:"seconds"` // since it connected
	Idle    int64  `json:"idle"`    // seconds since its last request
	Hits    int64  `json:"hits"`
	Misses  int64  `json:"misses"`
	Stored  int64  `json:"stored"`
}

type statusSegment struct {
	Name       string `json:"name"`
	Size       int64  `json:"size"`
	Generation uint64 `json:"generation"`
}

// statusLevel has -1 for what is unknown.
type statusLevel struct {
	Name     string `json:"name"`
	Away     bool   `json:"away"`
	Objects  int64  `json:"objects"`
	Bytes    int64  `json:"bytes"`
	Capacity int64  `json:"capacity"` // 0 is no limit of its own
	Held     int64  `json:"held"`
	Backlog  int    `json:"backlog"`
}

type statusLease struct {
	Name     string `json:"name"`
	Client   string `json:"client"`
	PID      int    `json:"pid"`     // 0 is unknown
	Seconds  int64  `json:"seconds"` // until its end; -1 is never, 0 that it has passed and only reservations are left
	Pinned   int    `json:"pinned"`
	Reserved int    `json:"reserved"`
	Bytes    int64  `json:"bytes"`
	Waiting  bool   `json:"waiting"`
	Names    int    `json:"-"` // nothing is asked about names
}

// Run asks the daemon.
func (c serveStatus) Run(parent *serveCommand) error {
	config, err := parent.load()
	if err != nil {
		return err
	}
	if c.Watch {
		return c.watch(config.Socket)
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.Timeout)
	defer cancel()
	s, err := askStatus(ctx, config.Socket, "ringcache serve status")
	if refused := (*wire.Error)(nil); !c.JSON && errors.As(err, &refused) && refused.Kind == wire.KindBusy {
		_, err = fmt.Printf("the daemon at %s is running, and has no room for another client: %s\n", config.Socket,
			printable(refused.Text))
		return err
	}
	if err != nil {
		return explainStatus(config.Socket, err)
	}
	if c.JSON {
		return writeJSON(os.Stdout, s)
	}
	return s.print(os.Stdout)
}

// watch prints the status again and again: on a terminal in place of the one before.
func (c serveStatus) watch(socket string) error {
	if c.Interval <= 0 {
		return fmt.Errorf("--interval %v is not above 0", c.Interval)
	}
	ctx, stop := interruptible()
	defer stop()
	source := &daemonSource{socket: socket, timeout: c.Timeout, name: "ringcache serve status"}
	defer source.close()
	enc := jsonLines(os.Stdout)
	for {
		s, err := source.status(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // it was interrupted, which is how this ends
		}
		switch {
		case c.JSON && err == nil:
			err = enc.Encode(s)
		case c.JSON:
			err = enc.Encode(map[string]string{"error": err.Error()})
		default:
			err = printAgain(os.Stdout, func(to io.Writer) error {
				fmt.Fprintln(to, time.Now().Format(time.DateTime))
				if err != nil {
					_, err = fmt.Fprintln(to, terminal.Lines(err.Error()))
					return err
				}
				return s.print(to)
			})
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(c.Interval):
		}
	}
}

// printAgain prints what f prints: on a terminal from its upper left corner on, elsewhere with an empty line behind it.
func printAgain(to *os.File, f func(io.Writer) error) error {
	var b bytes.Buffer
	w := io.Writer(&b)
	if hasColour(to) {
		w = colourful{w}
	}
	if err := f(w); err != nil {
		return err
	}
	text := b.String() + "\n"
	if isTerminal(to) {
		// Each line is cleared behind its end, and all below at last: clearing all first would flicker.
		text = "\x1b[H" + strings.ReplaceAll(text, "\n", "\x1b[K\n") + "\x1b[J"
	}
	_, err := io.WriteString(to, text)
	return err
}

// askStatus asks as a session of its own, which has no leases. name is what the daemon shows others of it.
func askStatus(ctx context.Context, socket, name string) (_ *status, err error) {
	c, err := client.Dial(ctx, client.Options{Socket: socket, Name: name})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	return statusBy(ctx, socket, c)
}

// statusBy asks in a session that stays.
func statusBy(ctx context.Context, socket string, c *client.Client) (*status, error) {
	p, err := c.Stat(ctx, wire.Request{List: true})
	if err != nil {
		return nil, err
	}
	if p.State == nil {
		return nil, errors.New("the daemon's answer has no state")
	}
	h := c.Hello()
	s := &status{
		Server: h.Server, Socket: socket, Segment: statusSegment{h.Segment.Name, h.Segment.Size,
			h.Segment.Generation}, Seconds: p.State.Seconds,
		Sessions: max(0, p.State.Sessions-1), // without this one
		Fetches:  p.State.Fetches, Backlog: p.State.Backlog, Clearing: p.State.Clearing,
		Levels: []statusLevel{}, Leases: []statusLease{}, Clients: []statusClient{},
		Total: useOf(wire.Use{Seconds: p.State.Seconds, Hits: p.State.Hits, Misses: p.State.Misses,
			Stored: p.State.Stored}),
	}
	if p.State.Recent != nil {
		s.Recent = useOf(*p.State.Recent)
	}
	for _, x := range p.Clients {
		if x.Session != c.Session() {
			s.Clients = append(s.Clients, statusClient(x))
		}
	}
	for _, l := range p.State.Levels {
		s.Levels = append(s.Levels, statusLevel(l))
	}
	for _, l := range p.Leases {
		s.Leases = append(s.Leases, statusLease(l))
	}
	return s, nil
}

// explainStatus adds what to do to the error of a daemon that does not answer.
func explainStatus(socket string, err error) error {
	what := "the daemon at " + socket + " does not answer"
	refused := (*wire.Error)(nil)
	switch {
	case errors.As(err, &refused):
		what = "the daemon at " + socket + " refuses to answer"
	case errors.Is(err, fs.ErrNotExist):
		what = "no daemon listens at " + socket + ", and there is no such socket: start `ringcache serve`, or name its socket by --socket"
	case errors.Is(err, syscall.ECONNREFUSED):
		what = "no daemon listens at " + socket + ": it is dead. Start `ringcache serve` again, which takes over everything in shared memory"
	case errors.Is(err, fs.ErrPermission):
		what = "the socket " + socket + " belongs to another user: run this as the user that runs the daemon"
	case errors.Is(err, syscall.ENOTSOCK), errors.Is(err, syscall.EPROTOTYPE):
		what = socket + " is not a socket of a daemon: name the right one by --socket"
	}
	return fmt.Errorf("%s (%w)", what, err)
}

// print writes tables for people.
func (s *status) print(to io.Writer) error {
	fmt.Fprintf(to, "%s at %s, up %v, segment %s of %s\n", printable(s.Server), s.Socket,
		time.Duration(s.Seconds)*time.Second, printable(s.Segment.Name), size(s.Segment.Size))
	fmt.Fprintf(to, "%d sessions, %d leases, %d objects being fetched into memory, %d to be written to lower levels\n",
		s.Sessions, len(s.Leases), s.Fetches, s.Backlog)
	if s.Clearing {
		fmt.Fprintln(to, "a space is being cleared")
	}
	tables := []*table{newTable(to, "LEVEL", "STATE", "OBJECTS", "BYTES", "CAPACITY", "HELD", "BACKLOG")}
	for _, l := range s.Levels {
		tables[0].row(printable(l.Name), l.state(), count(l.Objects), size(l.Bytes), l.capacity(), size(l.Held),
			l.Backlog)
	}
	use := newTable(to, "WITHIN", "HITS", "MISSES", "RATE", "STORED")
	use.row(s.Recent.cells()...)
	use.row(s.Total.cells()...)
	tables = append(tables, use)
	if len(s.Clients) > 0 {
		w := newTable(to, "CLIENT", "PID", "SPACE", "HITS", "MISSES", "STORED", "HERE FOR", "LAST CALL")
		for _, x := range s.Clients {
			w.row(printable(x.Client), x.PID, orNone(x.Space), x.Hits, x.Misses, x.Stored,
				time.Duration(x.Seconds)*time.Second, fmt.Sprintf("%v ago", time.Duration(x.Idle)*time.Second))
		}
		tables = append(tables, w)
	}
	if len(s.Leases) > 0 {
		w := newTable(to, "LEASE", "CLIENT", "PID", "LEFT", "PINNED", "RESERVED", "BYTES", "STATE")
		for _, l := range s.Leases {
			w.row(printable(l.Name), printable(l.Client), l.PID, timeLeft(l.Seconds), l.Pinned, l.Reserved,
				size(l.Bytes), l.state())
		}
		tables = append(tables, w)
	}
	for _, w := range tables {
		fmt.Fprintln(to)
		if err := w.flush(); err != nil {
			return err
		}
	}
	return nil
}

func (l statusLevel) state() string {
	if l.Away {
		return "away"
	}
	return "up"
}

func (l statusLevel) capacity() string {
	if l.Capacity == 0 {
		return "-"
	}
	return size(l.Capacity)
}

func (l statusLease) state() string {
	if l.Waiting {
		return "waiting"
	}
	return "open"
}

// timeLeft formats how long a lease stays.
func timeLeft(seconds int64) string {
	switch seconds {
	case -1:
		return "never"
	case 0:
		return "reserved"
	}
	return (time.Duration(seconds) * time.Second).String()
}
