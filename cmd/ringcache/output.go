package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/ringcache/ringcache/internal/terminal"
)

// One style for all commands: a table for people has a heading in capitals, two blanks between columns, sizes
// and times with units, "?" for what is unknown and "-" for what does not apply. Sentences have sizes as
// sizes.Text writes them. JSON has numbers: bytes, and seconds. One value is an indented JSON text; what may
// be long is one line for each element.

// isTerminal reports whether a writer is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// hasColour reports whether a writer shows colours and is to do so (https://no-color.org).
func hasColour(w io.Writer) bool {
	if _, ok := w.(colourful); ok {
		return true
	}
	return isTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// colourful is a writer whose texts go to a terminal with colours.
type colourful struct{ io.Writer }

const (
	bold   = "1"
	red    = "31"
	green  = "32"
	yellow = "33"
)

// paint gives a text a colour.
func paint(text, colour string) string { return "\x1b[" + colour + "m" + text + "\x1b[0m" }

// colourOf returns the colour of a cell that is a state, "" of any other text.
func colourOf(cell string) string {
	word, _, _ := strings.Cut(cell, ",")
	switch word {
	case "alive", "up", "ok":
		return green
	case "orphan", "waiting", "warning", "unreadable", "in use", "reserved", "other":
		return yellow
	case "damaged", "denied", "away", "error":
		return red
	}
	return ""
}

// widthOf returns how many columns a text takes.
func widthOf(s string) int {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return ansi.StringWidth(s)
		}
	}
	return len(s)
}

// tableBlock is how many rows a table keeps before it writes them.
const tableBlock = 1000

// table is a table for people. Rows are written in blocks, each with columns that are at least as wide as
// those of the block before, so that a table of any length takes little memory.
type table struct {
	w      io.Writer
	colour bool
	rows   [][]string
	widths []int
	head   bool // the first of rows is the heading
	err    error
}

func newTable(w io.Writer, heading ...string) *table {
	return &table{w: w, colour: hasColour(w), rows: [][]string{heading}, head: true}
}

// row adds a row. Texts of others go through printable first.
func (t *table) row(cells ...any) {
	texts := make([]string, len(cells))
	for i, c := range cells {
		texts[i] = fmt.Sprint(c)
	}
	t.rows = append(t.rows, texts)
	if len(t.rows) >= tableBlock {
		t.write()
	}
}

func (t *table) write() {
	var b strings.Builder
	for _, row := range t.rows {
		for i, c := range row {
			if i == len(t.widths) {
				t.widths = append(t.widths, 0)
			}
			t.widths[i] = max(t.widths[i], widthOf(c))
		}
	}
	for _, row := range t.rows {
		for i, c := range row {
			pad := strings.Repeat(" ", t.widths[i]-widthOf(c)+2)
			if i == len(row)-1 {
				pad = ""
			}
			if t.colour {
				colour := colourOf(c)
				if t.head {
					colour = bold
				}
				if colour != "" {
					c = paint(c, colour)
				}
			}
			b.WriteString(c + pad)
		}
		t.head = false
		b.WriteByte('\n')
	}
	t.rows = t.rows[:0]
	if t.err == nil {
		_, t.err = io.WriteString(t.w, b.String())
	}
}

// flush writes what is left, and returns the first error.
func (t *table) flush() error {
	t.write()
	return t.err
}

// printable returns a text as it is, or quoted if a terminal would not show it so.
func printable(s string) string { return terminal.Quote(s) }

// orNone is printable for a cell, of a text that may be empty.
func orNone(s string) string {
	if s == "" {
		return "-"
	}
	return printable(s)
}

// writeJSON writes a value for programs, which may have texts of peers.
func writeJSON(to io.Writer, v any) error {
	enc := json.NewEncoder(terminal.Writer(to))
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// jsonLines returns an encoder that writes one line for each value.
func jsonLines(to io.Writer) *json.Encoder { return json.NewEncoder(terminal.Writer(to)) }

func count[N int | int64](n N) string {
	if n < 0 {
		return "?"
	}
	return fmt.Sprint(n)
}

// size formats a number of bytes in a table, with about three digits.
func size(n int64) string {
	switch {
	case n < 0:
		return "?"
	case n >= 1<<30:
		return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}

// percent formats a share, 0 to 1; less is unknown.
func percent(share float64) string {
	if share < 0 {
		return "?"
	}
	return fmt.Sprintf("%.1f %%", 100*share)
}

// age formats how long ago something was.
func age(at time.Time) string {
	if at.IsZero() {
		return "?"
	}
	return span(time.Since(at))
}

// span formats a time with one unit.
func span(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

// secondsSince is age for programs; -1 is unknown.
func secondsSince(at time.Time) int64 {
	if at.IsZero() {
		return -1
	}
	return int64(max(time.Since(at), 0) / time.Second)
}

// newBar returns a progress bar, or nil if w is not a terminal. A total below 0 is not known.
func newBar(w io.Writer, total int, what string, more ...progressbar.Option) *progressbar.ProgressBar {
	if !isTerminal(w) {
		return nil
	}
	return progressbar.NewOptions(total, slices.Concat([]progressbar.Option{
		progressbar.OptionSetWriter(w), progressbar.OptionSetDescription(what), progressbar.OptionSetWidth(30),
		progressbar.OptionSetPredictTime(true), progressbar.OptionThrottle(100 * time.Millisecond),
	}, more)...)
}

// progress is the bar of work that takes longer than a second, on a terminal.
type progress struct {
	w     io.Writer
	what  string
	begin time.Time
	bar   *progressbar.ProgressBar // nil until then
}

func newProgress(what string) *progress {
	return &progress{w: os.Stderr, what: what, begin: time.Now()}
}

// show shows how much is done. all may change, and is below 0 if it is not known.
func (v *progress) show(done, all int) {
	if v.bar == nil && time.Since(v.begin) >= time.Second {
		v.bar = newBar(v.w, all, v.what, progressbar.OptionShowCount())
	}
	if v.bar == nil {
		return
	}
	if all >= 0 && all != v.bar.GetMax() {
		v.bar.ChangeMax(all)
	}
	_ = v.bar.Set(done) // a closed terminal does not end the work
}

// clear makes room for a line.
func (v *progress) clear() {
	if v.bar != nil {
		_ = v.bar.Clear()
	}
}

// end leaves the bar as it is, and the cursor below it.
func (v *progress) end() {
	if v.bar != nil {
		_ = v.bar.Exit()
		fmt.Fprintln(v.w)
	}
}
