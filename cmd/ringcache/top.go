package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/ringcache/ringcache/daemon/client"
	"github.com/ringcache/ringcache/inspect"
	"github.com/ringcache/ringcache/internal/terminal"
)

type topCommand struct {
	Name string `arg:"" optional:"" predict:"segment" help:"Segment to watch. Without it the daemon is."`
	daemonSocket

	Dir      string        `help:"Folder of shared memory of the segment, /dev/shm if empty."`
	Interval time.Duration `default:"1s" help:"Time between two looks."`
	Timeout  time.Duration `default:"10s" help:"Longest wait for the daemon."`
	Once     bool          `help:"Print one look, and end."`
}

// Help is the end of ringcache top --help.
func (topCommand) Help() string {
	return `Of a daemon: rates since the last look, levels and how full they are, sessions with the most requests
first, and leases. Of a segment: what ringcache inspect and ringcache map show. Without a terminal it prints one look,
as with --once.

Keys: q ends it, space stops it and lets it go on, up and down (k, j), page up and down, home and end move through what
is longer than the terminal.

The exit status is 0 after q or an interrupt. With --once it is 1 if the daemon does not answer, or there is no such
segment.`
}

// topSource is what is watched.
type topSource interface {
	// look writes how it is now.
	look(ctx context.Context, to io.Writer, width int) error
	close()
}

// Run watches.
func (c topCommand) Run() error {
	if c.Interval <= 0 {
		return fmt.Errorf("--interval %v is not above 0", c.Interval)
	}
	ctx, stop := interruptible()
	defer stop()
	var source topSource = &segmentSource{name: c.Name, dir: c.Dir}
	if c.Name == "" {
		config, err := configOf(c.Socket, c.Config)
		if err != nil {
			return err
		}
		source = &daemonSource{socket: config.Socket, timeout: c.Timeout, name: "ringcache top"}
	}
	defer source.close()
	if c.Once || !isTerminal(os.Stdout) || !isTerminal(os.Stdin) {
		return source.look(ctx, os.Stdout, 80)
	}
	m := &topModel{ctx: ctx, source: source, interval: c.Interval, colour: hasColour(os.Stdout), width: 80, height: 24}
	// The signal handler is the command's own: bubbletea's would end with an error.
	_, err := tea.NewProgram(m, tea.WithContext(ctx), tea.WithoutSignalHandler()).Run()
	if errors.Is(err, tea.ErrProgramKilled) || errors.Is(err, context.Canceled) {
		err = nil // by an interrupt
	}
	return err
}

// looked is the message with a look.
type looked struct {
	text string
	err  error
	at   time.Time
}

// topModel is the state of the screen. bubbletea calls its methods one at a time, and the commands that they
// return in goroutines of their own: one look at a time is under way.
type topModel struct {
	ctx      context.Context
	source   topSource
	interval time.Duration
	colour   bool

	width, height int
	offset        int // lines that are above the screen
	stopped       bool
	last          looked
}

// Init implements tea.Model.
func (m *topModel) Init() tea.Cmd { return m.look() }

// look returns the command that looks once.
func (m *topModel) look() tea.Cmd {
	width := m.width
	return func() tea.Msg {
		var b bytes.Buffer
		w := io.Writer(&b)
		if m.colour {
			w = colourful{w}
		}
		err := m.source.look(m.ctx, w, width)
		return looked{b.String(), err, time.Now()}
	}
}

type tick struct{}

// Update implements tea.Model.
func (m *topModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case looked:
		m.last = msg
		return m, tea.Tick(m.interval, func(time.Time) tea.Msg { return tick{} })
	case tick:
		if m.stopped {
			return m, tea.Tick(m.interval, func(time.Time) tea.Msg { return tick{} })
		}
		return m, m.look()
	case tea.KeyPressMsg:
		page := max(1, m.height-3)
		switch msg.String() {
		case "q", "ctrl+c", "esc":
			return m, tea.Quit
		case "space":
			m.stopped = !m.stopped
		case "up", "k":
			m.offset--
		case "down", "j":
			m.offset++
		case "pgup":
			m.offset -= page
		case "pgdown":
			m.offset += page
		case "home":
			m.offset = 0
		case "end":
			m.offset = len(m.lines())
		}
	}
	return m, nil
}

func (m *topModel) lines() []string {
	text := m.last.text
	if m.last.err != nil {
		text = terminal.Lines(m.last.err.Error()) + "\n"
		if m.colour {
			text = paint(strings.TrimSuffix(text, "\n"), red) + "\n"
		}
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// View implements tea.Model.
func (m *topModel) View() tea.View {
	lines := m.lines()
	room := max(1, m.height-2)
	m.offset = max(0, min(m.offset, len(lines)-room))
	shown := lines[m.offset:min(len(lines), m.offset+room)]
	state := "every " + m.interval.String()
	if m.stopped {
		state = "stopped"
	}
	if m.last.at.IsZero() {
		state = "asking"
	} else {
		state = m.last.at.Format(time.TimeOnly) + ", " + state
	}
	foot := fmt.Sprintf("q quit  space stop  %d-%d of %d  %s", m.offset+1, m.offset+len(shown), len(lines), state)
	out := make([]string, 0, room+2)
	for _, l := range shown {
		out = append(out, ansi.Truncate(l, m.width, "…"))
	}
	for len(out) < room {
		out = append(out, "")
	}
	out = append(out, "", ansi.Truncate(foot, m.width, ""))
	v := tea.NewView(strings.Join(out, "\n"))
	v.AltScreen = true
	return v
}

// daemonSource asks a daemon, in one session as long as that lasts.
type daemonSource struct {
	socket, name string
	timeout      time.Duration

	c      *client.Client // nil without a session
	before *status
	at     time.Time // of before
}

// status asks once, and connects first if need be.
func (d *daemonSource) status(ctx context.Context) (*status, error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	if d.c == nil {
		c, err := client.Dial(ctx, client.Options{Socket: d.socket, Name: d.name})
		if err != nil {
			return nil, explainStatus(d.socket, err)
		}
		d.c = c
	}
	s, err := statusBy(ctx, d.socket, d.c)
	if err != nil {
		d.close()
		return nil, explainStatus(d.socket, err)
	}
	return s, nil
}

func (d *daemonSource) close() {
	if d.c != nil {
		_ = d.c.Close() // the session is given up, whatever its connection says
		d.c = nil
	}
}

func (d *daemonSource) look(ctx context.Context, to io.Writer, width int) error {
	s, err := d.status(ctx)
	now := time.Now()
	if err != nil {
		d.before = nil
		return err
	}
	defer func() { d.before, d.at = s, now }()
	fmt.Fprintf(to, "%s at %s, up %v, segment %s of %s\n", printable(s.Server), s.Socket,
		time.Duration(s.Seconds)*time.Second, printable(s.Segment.Name), size(s.Segment.Size))
	// Rates are of this daemon: one that was started anew counts from 0.
	if b := d.before; b != nil && b.Seconds <= s.Seconds && b.Total.Hits <= s.Total.Hits {
		seconds := max(now.Sub(d.at).Seconds(), 1e-3)
		per := func(now, before int64) float64 { return float64(now-before) / seconds }
		fmt.Fprintf(to, "hits %.1f/s, misses %.1f/s, stored %.1f/s; hit rate %s recently, %s since the start\n",
			per(s.Total.Hits, b.Total.Hits), per(s.Total.Misses, b.Total.Misses), per(s.Total.Stored, b.Total.Stored),
			s.Recent.rate(), s.Total.rate())
	} else {
		fmt.Fprintf(to, "hit rate %s recently, %s since the start\n", s.Recent.rate(), s.Total.rate())
	}
	fmt.Fprintf(to, "sessions %d, leases %d, fetches %d, pending writes %d\n", s.Sessions, len(s.Leases), s.Fetches,
		s.Backlog)
	if s.Clearing {
		fmt.Fprintln(to, "a space is being cleared")
	}
	fmt.Fprintln(to)
	w := newTable(to, "LEVEL", "STATE", "FILL", "", "OBJECTS", "BYTES", "CAPACITY", "HELD", "PENDING")
	for _, l := range s.Levels {
		fill := -1.0
		if l.Capacity > 0 && l.Bytes >= 0 {
			fill = float64(l.Bytes) / float64(l.Capacity)
		}
		w.row(printable(l.Name), l.state(), meter(fill, min(20, max(5, width-70))), percent(fill), count(l.Objects),
			size(l.Bytes), l.capacity(), size(l.Held), l.Backlog)
	}
	if err := w.flush(); err != nil {
		return err
	}
	if len(s.Clients) > 0 {
		fmt.Fprintln(to)
		asked := func(x statusClient) int64 { return x.Hits + x.Misses + x.Stored }
		slices.SortStableFunc(s.Clients, func(a, b statusClient) int { return int(min(1, max(-1, asked(b)-asked(a)))) })
		w := newTable(to, "SESSION", "PID", "HITS", "MISSES", "STORED", "HERE FOR", "IDLE", "SPACE")
		for _, x := range s.Clients {
			w.row(orNone(x.Client), x.PID, x.Hits, x.Misses, x.Stored, span(time.Duration(x.Seconds)*time.Second),
				span(time.Duration(x.Idle)*time.Second), orNone(x.Space))
		}
		if err := w.flush(); err != nil {
			return err
		}
	}
	if len(s.Leases) == 0 {
		return nil
	}
	fmt.Fprintln(to)
	slices.SortStableFunc(s.Leases, func(a, b statusLease) int { return int(min(1, max(-1, b.Bytes-a.Bytes))) })
	w = newTable(to, "LEASE", "CLIENT", "PID", "LEFT", "PINNED", "RESERVED", "BYTES", "STATE")
	for _, l := range s.Leases {
		w.row(printable(l.Name), orNone(l.Client), l.PID, timeLeft(l.Seconds), l.Pinned, l.Reserved, size(l.Bytes),
			l.state())
	}
	return w.flush()
}

// meter draws a share as a bar.
func meter(share float64, width int) string {
	if share < 0 {
		return "[" + strings.Repeat("?", width) + "]"
	}
	full := int(min(share, 1)*float64(width) + 0.5)
	return "[" + strings.Repeat("#", full) + strings.Repeat(".", width-full) + "]"
}

// segmentSource looks at a segment, which may be made anew between two looks.
type segmentSource struct{ name, dir string }

func (d *segmentSource) close() {}

func (d *segmentSource) look(_ context.Context, to io.Writer, width int) error {
	return segmentArgs{Name: d.name, Dir: d.dir}.use(func(x *inspect.Segment) error {
		m, err := x.Map(max(10, width) * 6)
		if err != nil {
			return err
		}
		holders, _ := x.Holders() // the error is in the summary
		if err := drawMap(to, m, max(10, width)); err != nil {
			return err
		}
		return inspectCommand{Sort: "size", Limit: 20}.print(to, x, m.Summary, holders)
	})
}
