package inspect

import (
	"fmt"
	"html"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/ringcache/ringcache/internal/sizes"
	"github.com/ringcache/ringcache/internal/terminal"
)

// Map is the memory of a ring in equal parts.
type Map struct {
	Summary Summary `json:"segment"`
	Cells   []Cell  `json:"cells"`
}

// Cell is a part of the ring. States are bytes of chunks of this state within it; what no chunk has is free,
// or, of a ring, not known.
type Cell struct {
	Address int64           `json:"address"`
	Size    int64           `json:"size"`
	States  map[State]int64 `json:"states,omitempty"`
}

// Main is the state to show for the cell: the one that most needs to be seen, even if it has few of its
// bytes, and "" if the cell is free.
func (c Cell) Main() State {
	for _, s := range mapStates {
		if c.States[s] > 0 {
			return s
		}
	}
	return ""
}

// Used is the bytes of the cell that chunks take.
func (c Cell) Used() (n int64) {
	for _, b := range c.States {
		n += b
	}
	return min(n, c.Size)
}

// mapStates are the states of chunks, those first that matter most.
var mapStates = []State{Damaged, InUse, Reserved, Retired, Evictable, Unknown}

// Map draws the ring in at most cells parts, of at least 64 bytes each.
func (x *Segment) Map(cells int) (*Map, error) {
	s, err := x.Summary()
	if err != nil {
		return nil, err
	}
	m := &Map{Summary: s, Cells: []Cell{}}
	if x.size <= 0 || cells <= 0 {
		return m, nil
	}
	each := max((x.size+int64(cells)-1)/int64(cells), 64)
	for at := int64(0); at < x.size; at += each {
		m.Cells = append(m.Cells, Cell{Address: at, Size: min(each, x.size-at), States: map[State]int64{}})
	}
	for o := range x.Objects() {
		if o.Address < 0 || o.Address >= x.size || o.Chunk <= 0 {
			continue // damaged, without a place
		}
		end := o.Address + min(o.Chunk, x.size-o.Address)
		for at := o.Address; at < end; {
			c := &m.Cells[at/each]
			n := min(end, c.Address+c.Size) - at
			c.States[o.State] += n
			at += n
		}
	}
	return m, nil
}

// SVG draws the map as a picture that can stand alone: with a title, a legend, and colours for light and
// dark.
func (m *Map) SVG(w io.Writer) error {
	const columns, cell, gap, left, top = 64, 12, 1, 10, 58
	rows := (len(m.Cells) + columns - 1) / columns
	width := 2*left + columns*(cell+gap)
	height := top + rows*(cell+gap) + 40
	title := "Segment " + terminal.Text(m.Summary.Name)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" `+
		`font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&b, "<title>%s</title>\n", escape(title))
	b.WriteString(svgStyle)
	fmt.Fprintf(&b, `<rect class="back" width="%d" height="%d"/>`+"\n", width, height)
	fmt.Fprintf(&b, `<text x="%d" y="22" font-size="16">%s</text>`+"\n", left, escape(title))
	fmt.Fprintf(&b, `<text x="%d" y="42">%s</text>`+"\n", left, escape(m.Caption()))
	for i, c := range m.Cells {
		x, y := left+i%columns*(cell+gap), top+i/columns*(cell+gap)
		fmt.Fprintf(&b, `<rect class="%s" x="%d" y="%d" width="%d" height="%d"`, class(c.Main()), x, y, cell, cell)
		if used := c.Used(); used > 0 && used < c.Size { // faint where little is used
			fmt.Fprintf(&b, ` opacity="%.2f"`, 0.4+0.6*float64(used)/float64(c.Size))
		}
		fmt.Fprintf(&b, `><title>%s</title></rect>`+"\n", escape(c.text()))
	}
	x := left
	for _, s := range append([]State{""}, mapStates...) {
		name := stateName(s)
		fmt.Fprintf(&b, `<rect class="%s" x="%d" y="%d" width="%d" height="%d"/><text x="%d" y="%d">%s</text>`+"\n",
			class(s), x, height-24, cell, cell, x+cell+4, height-14, name)
		x += cell + 20 + 7*len(name)
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

const svgStyle = `<style>
text { fill: #222 } .back { fill: #fff } .free { fill: #e4e4e4 } .evictable { fill: #4a90c2 } .in-use { fill: #d9822b }
.reserved { fill: #8e5bb5 } .retired { fill: #8a8a8a } .unknown { fill: #7fa37f } .damaged { fill: #c4302b }
@media (prefers-color-scheme: dark) { text { fill: #eee } .back { fill: #1b1b1b } .free { fill: #333 } }
</style>
`

// Caption is one line about the segment.
func (m *Map) Caption() string {
	s := m.Summary
	policy := s.Policy
	if policy == policyForeign {
		policy = "a ring"
	}
	text := fmt.Sprintf("%s, %s of %s", s.State, policy, sizes.Text(max(s.Size, 0)))
	if s.Objects >= 0 {
		text += fmt.Sprintf(", %d objects", s.Objects)
	}
	if fill := s.Fill(); fill >= 0 {
		text += fmt.Sprintf(", %.1f %% full", 100*fill)
	}
	if len(m.Cells) > 0 {
		text += ", a cell is " + sizes.Text(m.Cells[0].Size)
	}
	return text
}

// text describes a cell.
func (c Cell) text() string {
	text := fmt.Sprintf("from %d", c.Address)
	for _, s := range mapStates {
		if n := c.States[s]; n > 0 {
			text += fmt.Sprintf(", %s %s", sizes.Text(n), s)
		}
	}
	if free := c.Size - c.Used(); free > 0 {
		text += fmt.Sprintf(", %s free", sizes.Text(free))
	}
	return text
}

// stateName is the name of a state in a legend, and of what has none.
func stateName(s State) string {
	if s == "" {
		return "free"
	}
	return string(s)
}

func class(s State) string { return strings.ReplaceAll(stateName(s), " ", "-") }

// escape makes a text one of XML, which has no other way to write most control characters, nor invalid UTF-8.
func escape(s string) string {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\ufffd")
	}
	return html.EscapeString(s)
}
