package browser

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/input"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/redistest"
)

// tab is a page in the browser.
type tab struct {
	testing.TB
	ctx context.Context

	mu       sync.Mutex
	problems []string // what the browser complains of
	requests []string // URLs that were asked for
	expected []string // parts of problems that a test causes
}

// open opens a page. Whatever the browser complains of fails the test at its end: scripts that fail, what the
// policy forbids, dialogs, and requests to elsewhere.
func open(t testing.TB, address string, width, height int64, mobile bool) *tab {
	t.Helper()
	path, env := chromium(t)
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.Env(env...), chromedp.Flag("disable-gpu", true), chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.Flag("hide-scrollbars", true), chromedp.WSURLReadTimeout(3*time.Minute))
	allocator, endAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	b := &tab{TB: t}
	ctx, end := chromedp.NewContext(allocator, chromedp.WithListener(b.listen))
	b.ctx = ctx
	t.Cleanup(func() {
		end()
		endAllocator()
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, p := range b.problems {
			require.True(t, slices.ContainsFunc(b.expected, func(e string) bool { return strings.Contains(p, e) }), "the browser complains: %s", p)
		}
		own, err := url.Parse(address)
		require.NoError(t, err)
		require.NotEmpty(t, b.requests)
		for _, r := range b.requests {
			u, err := url.Parse(r)
			require.NoError(t, err)
			require.Equal(t, own.Host, u.Host, "the page asked for something elsewhere: %s", r)
		}
	})
	require.NoError(t, chromedp.Do(ctx)) // starts the browser, which ends with this context
	call(b, network.Enable, network.EnableParams{})
	call(b, cdplog.Enable, cdp.Empty{})
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1, Mobile: mobile})
	call(b, emulation.SetTouchEmulationEnabled, emulation.SetTouchEmulationEnabledParams{Enabled: mobile})
	b.navigate(address)
	return b
}

// listen notes what the browser complains of, and what the page asks for.
func (b *tab) listen(ev any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch ev := ev.(type) {
	case *runtime.EventExceptionThrown:
		b.problems = append(b.problems, fmt.Sprint(ev.ExceptionDetails.Text, " ", ev.ExceptionDetails.URL, ":", ev.ExceptionDetails.LineNumber))
	case *cdplog.EventEntryAdded:
		b.problems = append(b.problems, fmt.Sprint(ev.Entry.Level, " ", ev.Entry.Text, " ", ev.Entry.URL))
	case *page.EventJavascriptDialogOpening:
		b.problems = append(b.problems, "a dialog: "+ev.Message)
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, ev.Request.URL)
	}
}

// expect says that a test causes a complaint with this text.
func (b *tab) expect(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expected = append(b.expected, text)
}

// within bounds what the browser does for a test.
func (b *tab) within() (context.Context, context.CancelFunc) {
	return context.WithTimeout(b.ctx, 3*time.Minute)
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	ctx, cancel := b.within()
	defer cancel()
	require.NoError(b, chromedp.Do(ctx, actions...))
}

// call calls the browser.
func call[P, R any](b *tab, command cdp.Command[P, R], params P) R {
	b.Helper()
	ctx, cancel := b.within()
	defer cancel()
	r, err := chromedp.Call(ctx, command, params)
	require.NoError(b, err)
	return r
}

func (b *tab) navigate(address string) {
	b.Helper()
	b.do(chromedp.Navigate(address), chromedp.WaitReady(chromedp.CSS("body")))
}

// eval returns what a script yields.
func eval[T any](b *tab, script string) T {
	b.Helper()
	ctx, cancel := b.within()
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](script))
	require.NoError(b, err)
	return v
}

// until waits until a script yields true.
func (b *tab) until(what, script string) {
	b.Helper()
	for begin := time.Now(); !eval[bool](b, "!!("+script+")"); time.Sleep(20 * time.Millisecond) {
		if time.Since(begin) > 3*time.Minute {
			b.Fatalf("%s: it did not come to that; the page:\n%s", what, eval[string](b, "document.body.innerText"))
		}
	}
}

// live waits until the page gets updates.
func (b *tab) live() {
	b.Helper()
	b.until("it is live", `document.getElementById("connection").textContent === "live"`)
}

// press presses a key, as a keyboard does: the text of a letter comes with the key, so that a page can keep it from
// getting into a field.
func (b *tab) press(key string) {
	b.Helper()
	if len(key) == 1 && key >= " " {
		call(b, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: key, Text: key})
		call(b, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyUp, Key: key})
		return
	}
	b.do(chromedp.KeyEvent(key))
}

// text returns the text of the elements that a selector finds.
func (b *tab) text(selector string) string {
	b.Helper()
	return eval[string](b, fmt.Sprintf(`[...document.querySelectorAll(%q)].map(e => e.innerText).join("\n")`, selector))
}

// picture takes a picture of the upper part of the page, and keeps it where that is wanted.
func (b *tab) picture(name string, width, height float64) {
	b.Helper()
	beyond := true
	shot := call(b, page.CaptureScreenshot, page.CaptureScreenshotParams{
		CaptureBeyondViewport: &beyond, Clip: &page.Viewport{Width: width, Height: height, Scale: 1},
	}).Data
	img, err := png.Decode(bytes.NewReader(shot))
	require.NoError(b, err)
	require.Equal(b, int(width), img.Bounds().Dx())
	var out bytes.Buffer
	require.NoError(b, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, small(img)))
	b.Logf("picture %s: %d bytes", name, out.Len())
	require.Less(b, out.Len(), 200<<10, "pictures in documents are small")
	if *images != "" {
		require.NoError(b, os.MkdirAll(*images, 0o755))
		require.NoError(b, os.WriteFile(filepath.Join(*images, name+".png"), out.Bytes(), 0o644))
	}
}

// small returns a picture with its 256 most frequent colours, which differ from the others by shades of letters' edges.
func small(img image.Image) image.Image {
	counts := map[color.Color]int{}
	r := img.Bounds()
	for y := r.Min.Y; y < r.Max.Y; y++ {
		for x := r.Min.X; x < r.Max.X; x++ {
			counts[img.At(x, y)]++
		}
	}
	colours := slices.SortedFunc(maps.Keys(counts), func(a, b color.Color) int { return counts[b] - counts[a] })
	out := image.NewPaletted(r, colours[:min(len(colours), 256)])
	draw.Draw(out, r, img, r.Min, draw.Src)
	return out
}

const desk, deskHeight = 1000, 1500

// TestIdle: what a page shows of a daemon that nobody uses.
func TestIdle(t *testing.T) {
	d := serve(t, "--size", "64MiB", "--disk-size", "256MiB")
	b := open(t, d.url(), desk, 900, false)
	b.live()
	require.Equal(t, "Levels\nLast hour\nCalls\nSessions\nPending writes and fetches\nEvents\nSegment", b.text("h2"))
	require.Contains(t, b.text("header"), "ready")
	require.Contains(t, b.text("#levels"), "memory")
	require.Contains(t, b.text("#levels"), "0 bytes of 64.0 MiB")
	require.Contains(t, b.text("#events"), "serving")
	require.Contains(t, b.text("#map"), "alive, pool of 64.0 MiB, 0 objects")
	require.Contains(t, b.text("#sessions"), "no sessions")
	b.until("the time goes on", `/up \d+ s/.test(document.querySelector("header").innerText) && document.querySelector("#hour polyline")`)
	b.picture("page-idle", desk, deskHeight)

	b.navigate("http://" + d.http + "/") // leads to the page
	b.live()
	require.Equal(t, d.url(), eval[string](b, "location.href"))
}

// TestUpdates: what happens is shown without loading the page again.
func TestUpdates(t *testing.T) {
	d := serve(t, "--size", "4MiB")
	b := open(t, d.url(), desk, 900, false)
	b.live()
	eval[bool](b, `window.stays = true`)
	c := d.dial("engine one")
	defer c.Close()
	d.store(c, "lease", "space", 100<<10, "a", "b", "c")
	b.until("the session is there, with what it holds", `document.querySelector("#sessions tbody").innerText.includes("engine one") && /300\.\d KiB/.test(document.querySelector("#sessions tbody").innerText)`)
	b.until("the calls are there", `/reserve\s/.test(document.querySelector("#calls tbody").innerText)`)
	b.until("the segment has three objects", `document.querySelector("#map").innerText.includes("3 objects")`)
	require.Contains(t, b.text("#events"), "a client came")
	b.until("the map shows what is in use", `document.querySelector("#map svg.map rect.in-use title")`)

	// More than there is room for, so that some is refused.
	for i := range 60 {
		d.store(c, "lease", "space", 100<<10, fmt.Sprint("more-", i))
	}
	b.until("the refusals are events", `document.querySelector("#events").innerText.includes("objects refused: full")`)
	require.Contains(t, b.text("#calls"), "full")
	require.NoError(t, c.Close())
	b.until("the client went", `document.querySelector("#events").innerText.includes("a client went")`)
	require.True(t, eval[bool](b, `window.stays`), "it is the same page")
}

// hostile are texts that try to be more than texts.
var hostile = []string{
	`<img src=x onerror="window.pwned=1">`, `<script>window.pwned=1</script>`, `"><svg onload=window.pwned=1>`, `'onmouseover='window.pwned=1'`,
	`</table></div></main><iframe src=//example.invalid></iframe>`,
	`<a href="javascript:window.pwned=1">click</a>`, `<style>body{display:none}</style>`, `<meta http-equiv=refresh content=0>`,
}

// unseen are such texts with characters that names of sessions may not have.
var unseen = []string{"\r\n\r\nevent: status\r\ndata: <b>forged</b>\r\n\r\n", "\rdata: <b>forged</b>\r\r", "\u202efdp.exe", "\x1b[2J<b>"}

// TestHostileNames: names of sessions, spaces and objects that are HTML are texts in the browser, in the page, in its
// updates, and in a search.
func TestHostileNames(t *testing.T) {
	d := serve(t, "--size", "4MiB")
	b := open(t, d.url(), desk, 900, false)
	b.live()
	elements := `[...new Set([...document.querySelectorAll("*")].map(e => e.tagName.toLowerCase()))].sort().join(" ")`
	count := func() (n int) {
		return eval[int](b, `document.querySelectorAll("script, iframe, img, style, [onerror], [onload], [onmouseover], meta[http-equiv], a[href^=javascript]").length`)
	}
	require.Equal(t, 1, count(), "the page's own script")
	before := strings.Fields(eval[string](b, elements))
	for i, bad := range hostile {
		c := d.dial(bad)
		defer c.Close()
		d.store(c, bad, bad, 1000, bad, fmt.Sprint("object-", i))
		if i < len(unseen) {
			d.store(c, bad, unseen[i], 1000, unseen[i])
		}
	}
	b.until("all sessions are there", fmt.Sprintf(`document.querySelectorAll("#sessions tbody tr").length === %d`, len(hostile)))
	b.until("the clients are events", `document.querySelector("#events").innerText.includes("onerror")`)
	require.Contains(t, b.text("#sessions"), hostile[0])
	for _, reload := range []bool{false, true} {
		if reload {
			b.navigate(d.url())
			b.live()
		}
		require.Equal(t, 1, count())
		require.False(t, eval[bool](b, `"pwned" in window`))
		require.NotContains(t, b.text("header"), "forged")
		require.NotEqual(t, "none", eval[string](b, `getComputedStyle(document.body).display`))
		require.NotContains(t, eval[string](b, "document.body.innerText"), "\u202e")
		for _, e := range strings.Fields(eval[string](b, elements)) {
			require.Contains(t, append(before, "small", "time"), e)
		}
	}
	for _, q := range slices.Concat(hostile, unseen, []string{"object-", "<", "forged"}) {
		b.navigate(d.url() + "objects?q=" + url.QueryEscape(q))
		require.Zero(t, count(), q)
		require.Contains(t, b.text("h2"), "Objects in memory with")
	}
	b.navigate(d.url() + "objects?q=onerror")
	require.Contains(t, b.text("main"), "2 found")
	b.do(chromedp.Click(chromedp.CSS("main tbody a")), chromedp.WaitReady(chromedp.CSS("main dl")))
	require.Contains(t, b.text("main"), hostile[0])
	require.Contains(t, b.text("main"), "Leases that have it")
	require.Zero(t, count())
	require.False(t, eval[bool](b, `"pwned" in window`))
}

// TestKeyboard: everything is reached and done without a mouse.
func TestKeyboard(t *testing.T) {
	d := serve(t, "--size", "4MiB")
	c := d.dial("engine")
	defer c.Close()
	d.store(c, "lease", "space", 1000, "needle")
	b := open(t, d.url(), desk, 900, false)
	b.live()
	press := b.press
	focused := func() string {
		b.Helper()
		return eval[string](b, `(e => e.id || e.getAttribute("href") || e.getAttribute("aria-label") || e.tagName)(document.activeElement)`)
	}
	press(kb.Tab)
	require.Equal(t, "#levels", focused())
	require.Greater(t, eval[float64](b, `document.activeElement.getBoundingClientRect().left`), -1.0, "the link is seen when it is reached")
	press(kb.Enter)
	b.until("the first part has the focus", `document.activeElement.id === "levels"`)

	seen := map[string]bool{}
	eval[bool](b, `document.activeElement.blur(), document.querySelector(".skip").focus(), true`)
	for range 40 {
		press(kb.Tab)
		at := focused()
		seen[at] = true
		require.NotEqual(t, "none", eval[string](b, `getComputedStyle(document.activeElement).outlineStyle`), "the focus is seen at %s", at)
		if at == "Events" {
			break
		}
	}
	for _, want := range []string{"pause", "#levels", "#hour", "#calls", "#sessions", "#pending", "#events", "#map", "q", "BUTTON", "Calls", "Sessions", "Events"} {
		require.True(t, seen[want], "%s is reached by Tab; those that were: %v", want, seen)
	}

	for i, id := range []string{"levels", "hour", "calls", "sessions", "pending", "events", "map"} {
		press(fmt.Sprint(i + 1))
		require.Equal(t, id, focused())
	}
	press("p")
	require.Equal(t, "true", eval[string](b, `document.getElementById("pause").getAttribute("aria-pressed")`))
	require.Equal(t, "paused", b.text("#connection"))
	press("p")
	b.live()
	press("/")
	require.Equal(t, "q", focused())
	for _, r := range "p1/needle" {
		press(string(r))
	}
	require.Equal(t, "p1/needle", eval[string](b, `document.getElementById("q").value`), "in the field keys are letters")
	require.Equal(t, "live", b.text("#connection"))
	for range len("p1/needle") {
		press(kb.Backspace)
	}
	for _, r := range "needle" {
		press(string(r))
	}
	press(kb.Enter)
	b.until("the search has an answer", `location.pathname.endsWith("objects") && document.querySelector("main tbody a")`)
	eval[bool](b, `document.querySelector("button").focus(), true`)
	press(kb.Tab)
	press(kb.Tab) // the table, then the link in it
	press(kb.Enter)
	b.until("the object is shown", `document.querySelector("main dl")`)
	require.Contains(t, b.text("main"), "needle")
}

// TestAway: a busy daemon, a level that goes away, and comes back.
func TestAway(t *testing.T) {
	redis := redistest.NewFake(t)
	d := serve(t, "--size", "32MiB", "--disk-size", "256MiB", "--redis", redis.Addr())
	stop := d.load()
	defer func() { stop() }()
	b := open(t, d.url(), desk, 900, false)
	b.live()
	before := b.memory()
	began := time.Now()
	for time.Since(began) < *busy {
		time.Sleep(min(time.Minute, *busy))
		n := b.memory()
		t.Logf("after %v: %d nodes, %d KiB of the script's heap; before: %d, %d KiB", time.Since(began).Round(time.Second), n.nodes, n.heap>>10, before.nodes, before.heap>>10)
	}
	after := b.memory()
	require.Less(t, after.nodes, before.nodes+6000, "parts are replaced, and do not pile up")
	require.Less(t, after.heap, before.heap+(8<<20))
	b.until("it has hits", `/[1-9]\d*\.\d %/.test(document.querySelector("#hour").innerText)`)
	b.picture("page-busy", desk, 2400)

	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 390, Height: 844, DeviceScaleFactor: 1, Mobile: true})
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}})
	b.picture("page-phone", 390, 1500)
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{})
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: desk, Height: 900, DeviceScaleFactor: 1})

	redis.Do(func(io.Writer, []string, []byte) error { return errors.New("it is gone") })
	b.until("the level is away", `document.querySelector(".card.away h3")?.innerText.includes("redis")`)
	b.until("that is an event", `document.querySelector("#events").innerText.includes("a level is away")`)
	require.Contains(t, b.text("header"), "away: redis")
	b.until("the curve shows it", `document.querySelector("#hour .gone")`)
	b.picture("page-away", desk, 2400)
	redis.Do(nil)
	b.until("the level is back", `!document.querySelector(".card.away")`)
	b.until("that is an event", `document.querySelector("#events").innerText.includes("a level is back")`)
}

type memory struct{ nodes, heap int64 }

// memory returns what the page takes, without garbage.
func (b *tab) memory() (m memory) {
	b.Helper()
	call(b, heapprofiler.CollectGarbage, cdp.Empty{})
	call(b, performance.Enable, performance.EnableParams{})
	for _, x := range call(b, performance.GetMetrics, cdp.Empty{}).Metrics {
		switch x.Name {
		case "Nodes":
			m.nodes = int64(x.Value)
		case "JSHeapUsedSize":
			m.heap = int64(x.Value)
		}
	}
	return m
}

// TestPhone: on a narrow screen nothing but tables is wider than it, and in the dark it is dark.
func TestPhone(t *testing.T) {
	d := serve(t, "--size", "32MiB", "--disk-size", "256MiB")
	stop := d.load()
	defer func() { stop() }()
	b := open(t, d.url(), 390, 844, true)
	b.live()
	b.until("it has sessions", `document.querySelectorAll("#sessions tbody tr").length === 4`)
	for _, dark := range []string{"dark", "light"} {
		call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: dark}}})
		require.LessOrEqual(t, eval[int](b, `document.documentElement.scrollWidth`), 390)
		require.Equal(t, dark == "dark", eval[int](b, `Number(getComputedStyle(document.body).backgroundColor.match(/\d+/)[0])`) < 128)
		require.Empty(t, eval[[]string](b, contrast), "texts that are hard to read when it is %s", dark)
	}
	require.GreaterOrEqual(t, eval[float64](b, `document.getElementById("pause").getBoundingClientRect().height`), 36.0, "a finger finds it")
	b.do(chromedp.Click(chromedp.CSS("#pause")))
	require.Equal(t, "paused", b.text("#connection"))
}

// contrast lists texts whose colour is too near to what is behind them: WCAG's ratio is below 4.5.
const contrast = `(() => {
	const parse = c => c.match(/[\d.]+/g).map(Number);
	const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
		.reduce((s, v, i) => s + v * [0.2126, 0.7152, 0.0722][i], 0);
	const behind = e => {
		for (; e; e = e.parentElement) {
			const c = parse(getComputedStyle(e).backgroundColor);
			if (c.length < 4 || c[3] > 0) return c;
		}
		return [255, 255, 255];
	};
	const out = new Set();
	for (const e of document.querySelectorAll("body *")) {
		if (e.closest("svg") || ![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
		const [a, b] = [light(parse(getComputedStyle(e).color)), light(behind(e))];
		if ((Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) < 4.5) out.add(e.tagName + " " + e.className + " " + e.textContent.slice(0, 30));
	}
	return [...out];
})()`

// TestDaemonGoesAndComesBack: the page says that it is old, and goes on by itself.
func TestDaemonGoesAndComesBack(t *testing.T) {
	d := serve(t, "--size", "4MiB")
	b := open(t, d.url(), desk, 900, false)
	b.expect("ERR_CONNECTION_REFUSED")
	b.expect("ERR_INCOMPLETE_CHUNKED_ENCODING")
	b.expect("ERR_CONNECTION_RESET")
	b.live()
	d.end()
	b.until("the page says so", `document.getElementById("connection").textContent.includes("no connection")`)
	require.Contains(t, b.text("#levels"), "memory", "what was there is still shown")
	d.start()
	b.live()
}

// TestKey: without the key there is nothing, and with it as a password everything, updates too.
func TestKey(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(file, []byte("the-key\n"), 0o600))
	d := serve(t, "--size", "4MiB", "--http-key-file", file)
	b := open(t, d.url(), desk, 900, false)
	b.expect("401")
	require.NotContains(t, b.text("body"), "memory")
	b.navigate("http://anyone:wrong@" + d.http + "/page/")
	require.NotContains(t, b.text("body"), "memory")
	b.navigate("http://anyone:the-key@" + d.http + "/page/")
	b.live()
	require.Contains(t, b.text("#levels"), "memory")
}
