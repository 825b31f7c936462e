package page

import (
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/ringcache/ringcache/daemon/internal/registry"
	"github.com/ringcache/ringcache/daemon/wire"
	"github.com/ringcache/ringcache/tier"
)

// hostile are texts of clients that try to be more than texts.
var hostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onmouseover='alert(1)`, `</title></svg></style><iframe src=//x>`,
	`<svg/onload=alert(1)>`, `javascript:alert(1)`, `{{.Version}}`, `&lt;b&gt;`, "a\r\n\r\nevent: status\r\ndata: <b>forged</b>\n\n", "a\rdata: b\r\r",
	"\u202egnp.exe", "\x1b[31mred", "\xff\xfe<b>", strings.Repeat("<", 1000),
}

// allowed are the elements and attributes of the page.
var (
	allowedElements = strings.Fields("html head meta title link script body a header h1 h2 h3 div span button nav form label input main section " +
		"article svg rect polyline dl dt dd figure figcaption b p table caption thead tbody tr th td small time ul li footer kbd noscript")
	allowedAttributes = strings.Fields("lang charset name content rel href type src defer class id data-live role hidden aria-pressed aria-label " +
		"aria-hidden for value required placeholder autocomplete spellcheck tabindex viewbox preserveaspectratio width height points x y fill-opacity " +
		"scope colspan datetime action viewBox preserveAspectRatio")
)

// harmless fails if a document has anything that the page's own templates do not.
func harmless(t *testing.T, n *html.Node) {
	t.Helper()
	for x := range n.Descendants() {
		if x.Type != html.ElementNode {
			continue
		}
		require.Contains(t, allowedElements, x.Data)
		for _, a := range x.Attr {
			require.Contains(t, allowedAttributes, a.Key, x.Data)
			switch a.Key {
			case "href", "src", "action":
				u, err := url.Parse(a.Val)
				require.NoError(t, err)
				require.Empty(t, u.Scheme+u.Host, a.Val)
			}
		}
		if x.Data == "script" {
			require.Nil(t, x.FirstChild, "no script inside")
			require.Equal(t, []html.Attribute{{Key: "src", Val: "page.js"}, {Key: "defer"}}, x.Attr)
		}
	}
}

// TestHostileTexts: wherever a client's text is shown, it is a text.
func TestHostileTexts(t *testing.T) {
	for _, bad := range hostile {
		synctest.Test(t, func(t *testing.T) {
			p, f := newPage(t, func(o *Options) { segment(t, o, cut(bad, 900)); o.Version = bad })
			name := cut(bad, 900)
			log := slog.New(p.o.Events.Handler(slog.DiscardHandler)).With(bad, bad).WithGroup(bad)
			f.set(func(f *fake) {
				f.now.State, f.now.Levels[0].Name = bad, bad
				f.holdings = []registry.Holding{{Visit: registry.Visit{Protocol: "ringcache", Session: bad, Label: bad, Space: bad, Last: time.Now()}}}
				f.found.Object = tier.Object{Key: tier.Key{Space: bad, Name: bad}, Parent: bad, Tenant: bad, Note: []byte(bad)}
				f.found.Levels = []string{bad}
				f.leases = []wire.Lease{{Name: bad, Client: bad}}
			})
			log.Warn(bad, bad, bad, slog.Group(bad, bad, bad))
			p.sample()
			w, index := get(t, p, Path)
			require.Equal(t, 200, w.Code)
			harmless(t, index)
			require.Equal(t, len(partNames), strings.Count(w.Body.String(), "data-live"), "a part more")
			for _, q := range []url.Values{{"q": {bad}}, {"q": {name[:1]}}, {"space": {"space"}, "name": {bad}}} {
				w, n := get(t, p, Path+"objects?"+q.Encode())
				require.Equal(t, 200, w.Code, w.Body.String())
				harmless(t, n)
				require.NotContains(t, textOf(n), "\u202e") // but in the field that has what was searched for
				require.NotContains(t, textOf(n), "\x1b")
			}

			s := serve(t, p)
			c := s.ask()
			got := read(t, c).until(t)
			require.Len(t, got, len(partNames))
			for name, part := range got {
				i := slices.Index(partNames[:], name)
				require.Equal(t, string(p.parts[i].html), part, "of the part %s nothing is lost, and nothing added", name)
			}
			require.NoError(t, c.Close())
			s.end()
		})
	}
}

// TestWriteEvent: whatever the text, there is one event.
func TestWriteEvent(t *testing.T) {
	for _, text := range append(hostile, "", "\n", "\r", "\r\n\r\n", "a\n\nb", "data: x", ": comment") {
		var b strings.Builder
		writeEvent(&b, "x", []byte(text))
		lines := strings.Split(b.String(), "\n")
		require.Equal(t, "event: x", lines[0])
		require.Equal(t, []string{"", ""}, lines[len(lines)-2:])
		for _, l := range lines[1 : len(lines)-2] {
			require.True(t, strings.HasPrefix(l, "data: "), "%q", l)
			require.NotContains(t, l, "\r")
		}
	}
}
