package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/ringcache/ringcache/inspect"
)

type mapCommand struct {
	segmentArgs
	SVG   bool `name:"svg" help:"Write a picture, as SVG."`
	JSON  bool `name:"json" help:"Print one JSON object: the parts, with bytes by state."`
	Width int  `help:"Columns of the drawing; those of the terminal, or 80."`
	Rows  int  `default:"16" help:"Rows of the drawing."`
}

// Help is the end of ringcache map --help.
func (mapCommand) Help() string {
	return `Each character is a part of the ring, the first one at its begin. It shows the state that most needs to be
seen, even if few of its bytes have it:
` + mapLegend + `
The exit status is that of ringcache inspect.`
}

// mapMarks are the characters of states.
var mapMarks = []struct {
	state  inspect.State
	mark   string
	colour string
}{
	{inspect.Damaged, "!", red}, {inspect.InUse, "@", yellow}, {inspect.Reserved, "w", yellow},
	{inspect.Retired, "r", ""}, {inspect.Evictable, "#", green}, {inspect.Unknown, "?", ""},
}

const mapLegend = "  ! damaged   @ in use   w reserved   r retired   # evictable   " +
	"+ evictable, and partly free   ? a chunk of a ring   . free\n"

// maxCells bounds what is drawn.
const maxCells = 1 << 16

// Run draws a segment.
func (c mapCommand) Run() error {
	width := c.Width
	if width <= 0 {
		width = 80
		if columns, _, err := term.GetSize(int(os.Stdout.Fd())); err == nil && columns > 0 {
			width = columns
		}
	}
	cells := min(width, maxCells) * max(1, min(c.Rows, maxCells/min(width, maxCells)))
	if c.SVG {
		cells = 64 * max(1, min(c.Rows, 256))
	}
	return c.use(func(x *inspect.Segment) error {
		m, err := x.Map(cells)
		if err != nil {
			return err
		}
		switch {
		case c.JSON:
			err = writeJSON(os.Stdout, m)
		case c.SVG:
			err = m.SVG(os.Stdout)
		default:
			err = drawMap(os.Stdout, m, width)
		}
		return cmp.Or(err, verdict(m.Summary))
	})
}

// drawMap draws a map for people.
func drawMap(to io.Writer, m *inspect.Map, width int) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", printable(m.Summary.Name), m.Caption())
	colours := hasColour(to)
	for i, c := range m.Cells {
		mark, colour := cellMark(c)
		if colours && colour != "" {
			mark = paint(mark, colour)
		}
		b.WriteString(mark)
		if i%width == width-1 || i == len(m.Cells)-1 {
			b.WriteByte('\n')
		}
	}
	b.WriteString(mapLegend)
	_, err := io.WriteString(to, b.String())
	return err
}

// cellMark returns the character of a cell.
func cellMark(c inspect.Cell) (mark, colour string) {
	main := c.Main()
	if main == inspect.Evictable && c.Used() < c.Size {
		return "+", green
	}
	for _, m := range mapMarks {
		if m.state == main {
			return m.mark, m.colour
		}
	}
	return ".", ""
}
