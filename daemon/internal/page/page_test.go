package page

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/internal/registry"
	"github.com/ringcache/ringcache/daemon/wire"
	"github.com/ringcache/ringcache/tier"
)

// run runs the page until the end of the test.
func run(t *testing.T, p *Page) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Run(ctx)
	}()
	return func() { cancel(); <-done }
}

// TestPageShowsWhatThereIs, without a script, and before there is a store.
func TestPageShowsWhatThereIs(t *testing.T) {
	p, f := newPage(t, func(o *Options) { segment(t, o, "a", "b") })
	f.set(func(f *fake) {
		f.now.Levels[1].Away = true
		f.now.Levels[1].Backlog = 7
		f.now.Backlog, f.now.Fetches, f.now.Sessions, f.now.Processes, f.now.Leases, f.now.Held = 7, 3, 60, 4, 5, 1<<20
		f.now.Ops[0].Within[0] = 12345
		f.now.Values = []Values{{Protocol: "resp", Hits: 77}}
		f.now.Refused = []Refused{{"requests", "busy", 8}, {"requests", "version", 0}}
		f.holdings = []registry.Holding{
			{Visit: registry.Visit{Protocol: "ringcache", Session: "s1", Label: "engine one", PID: 4711, Space: "space", Last: time.Now()}, Connected: true, Leases: 2, Objects: 3, Bytes: 3 << 20},
			{Visit: registry.Visit{Protocol: "lmcache", Session: "s2"}, Waiting: true},
		}
	})
	p.o.Events.add(event{At: time.Now(), Level: slog.LevelWarn, Text: "a level is away", Details: "level=disk"})
	p.sample()
	w, n := get(t, p, Path)
	require.Equal(t, 200, w.Code)
	text := textOf(n)
	for _, want := range []string{
		"ready up 1 min segment segment, 1.0 MiB ringcache test", "memory up full 50.0 % bytes 50 bytes of 100 bytes objects 1 000 held, not evictable 25 bytes",
		"disk away full – bytes ? objects ?", "memory: full 50.0 %", "pin 0.0 – – – 12 345", "resp 0 77 0 0 0", "requests busy 8",
		"60 sessions of 4 processes, with 5 leases that hold 1.0 MiB", "engine one ringcache/s1 4711 3.0 MiB 3 2 0 0 0 0 s ago space", "– lmcache/s2 waits ?", "58 more hold no more",
		"to lower levels 7", "of them for level disk 7, which is away", "way into memory 3", "WARN a level is away level=disk", "alive, pool of 1.0 MiB, 2 objects",
	} {
		require.Contains(t, text, want)
	}
	require.NotContains(t, text, "version 0", "what did not happen is not listed")
	require.Contains(t, w.Body.String(), `aria-label="50.0 % full, 25.0 % held"`)
	harmless(t, n)

	f.set(func(f *fake) { f.now = Now{State: "opening the levels"}; f.holdings = nil })
	p.at = time.Time{}
	p.sample()
	_, n = get(t, p, Path)
	require.Contains(t, textOf(n), "opening the levels")
	require.Contains(t, textOf(n), "There is no store yet")
	w, _ = get(t, p, Path+"objects?q=a")
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
}

// TestPageChangesNothing: no method but GET and HEAD, no form that posts, and headers that keep everything else out.
func TestPageChangesNothing(t *testing.T) {
	p, _ := newPage(t, nil)
	for _, path := range []string{"/page", Path, Path + "page.js", Path + "page.css", Path + "icon.svg", Path + "objects", StreamPath} {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"} {
			h := p.Handler(true)
			if path == StreamPath {
				h = p.Stream(true)
				if method == "GET" {
					continue // it goes on
				}
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
			if method == "GET" || method == "HEAD" && path != StreamPath {
				require.Contains(t, []int{200, http.StatusMovedPermanently}, w.Code, path)
			} else {
				require.Equal(t, http.StatusMethodNotAllowed, w.Code, "%s %s", method, path)
			}
			require.Equal(t, policy, w.Header().Get("Content-Security-Policy"))
			require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
			require.Empty(t, w.Header().Get("Access-Control-Allow-Origin"))
		}
	}
	for _, directive := range strings.Split(policy, "; ") {
		require.Regexp(t, `^[a-z-]+ '(none|self)'$`, directive, "nothing from elsewhere, nothing inside the page")
	}
	for _, path := range []string{Path, Path + "objects", Path + "objects?q=a", Path + "objects?space=a&name=b"} {
		_, n := get(t, p, path)
		harmless(t, n) // among others, no form has a method
	}
	w, _ := get(t, p, "/page")
	require.Equal(t, "page/", w.Header().Get("Location"))
	w, _ = get(t, p, Path+"none")
	require.Equal(t, http.StatusNotFound, w.Code)
}

// TestNameOfAnotherWebsite: a website that has its name point to this machine gets nothing, unless a key is asked for.
func TestNameOfAnotherWebsite(t *testing.T) {
	p, _ := newPage(t, nil)
	for host, code := range map[string]int{
		"127.0.0.1:9401": 200, "127.0.0.1": 200, "localhost": 200, "localhost:1": 200, "[::1]:9401": 200, "[::1]": 200, "10.1.2.3:9401": 200,
		"evil.example": 421, "evil.example:9401": 421, "": 421, "localhost.evil.example": 421, "127.0.0.1.evil.example": 421, "[evil]": 421, "[": 421,
	} {
		for _, guarded := range []bool{false, true} {
			q := httptest.NewRequest(http.MethodGet, Path, nil)
			q.Host = host
			w := httptest.NewRecorder()
			p.Handler(guarded).ServeHTTP(w, q)
			if guarded {
				code = 200
			}
			require.Equal(t, code, w.Code, host)
			if code != 200 {
				require.NotContains(t, w.Body.String(), "memory")
				q.URL.Path = StreamPath
				w := httptest.NewRecorder()
				p.Stream(false).ServeHTTP(w, q)
				require.Equal(t, code, w.Code)
			}
		}
	}
}

// TestStream: all parts at first, then those that change, events at once, for longer than other answers may take.
func TestStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, f := newPage(t, func(o *Options) { segment(t, o, "a") })
		stop := run(t, p)
		s := serve(t, p)
		c := s.ask()
		r := read(t, c)
		require.Equal(t, 200, r.status)
		require.Equal(t, "text/event-stream", r.header.Get("Content-Type"))
		first := r.until(t)
		require.Len(t, first, len(partNames))
		require.Contains(t, first["map"], "<svg")
		require.Empty(t, r.until(t), "nothing has changed")
		f.set(func(f *fake) { f.now.Backlog = 99 })
		require.Contains(t, r.until(t)["pending"], "99")

		before := time.Now()
		slog.New(p.o.Events.Handler(slog.DiscardHandler)).Warn("something happened")
		got := r.until(t)
		require.Contains(t, got["events"], "something happened")
		require.Len(t, got, 1)
		require.Less(t, time.Since(before), Step, "it did not wait for the next step")

		for end := time.Now().Add(10 * time.Minute); time.Now().Before(end); {
			got := r.until(t)
			require.NotContains(t, got, "pending", "it has not changed")
		}
		stop() // the daemon ends
		_, err := r.next()
		require.Error(t, err)
		require.NoError(t, c.Close())
		c = s.ask()
		require.Equal(t, http.StatusServiceUnavailable, read(t, c).status)
		require.NoError(t, c.Close())
		s.end()
	})
}

// TestStreamsAreBounded: one too many is told so, and has its turn when another one has gone.
func TestStreamsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := newPage(t, nil)
		s := serve(t, p)
		a := s.ask()
		synctest.Wait() // it has its stream
		b := s.ask()
		synctest.Wait()
		c := s.ask()
		ra := read(t, a)
		require.Equal(t, 200, ra.status)
		ra.until(t)
		rb := read(t, b)
		rb.until(t)
		refused := read(t, c)
		require.Equal(t, http.StatusServiceUnavailable, refused.status)
		require.Equal(t, fmt.Sprint(retryAfter), refused.header.Get("Retry-After"))
		require.NoError(t, c.Close())
		require.NoError(t, a.Close())
		synctest.Wait()
		d := s.ask()
		require.Equal(t, 200, read(t, d).status)
		require.NoError(t, d.Close())
		require.NoError(t, b.Close())
		s.end()
	})
}

// TestSlowReaderIsDropped: it costs nobody else anything, and its stream ends.
func TestSlowReaderIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, f := newPage(t, nil)
		stop := run(t, p)
		s := serve(t, p)
		slow, other := s.ask(), s.ask()
		r := read(t, other)
		for i := range 10 {
			f.set(func(f *fake) { f.now.Backlog = i })
			r.until(t)
		}
		synctest.Wait()
		require.Len(t, p.streams, 1, "the one that takes nothing has gone")
		require.NoError(t, slow.Close())
		require.NoError(t, other.Close())
		stop()
		s.end()
	})
}

// TestNobodyLooks: then counters are read, and nothing else is done.
func TestNobodyLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, f := newPage(t, nil)
		stop := run(t, p)
		for range 100 {
			time.Sleep(Step)
			p.o.Events.add(event{Text: "event"})
		}
		synctest.Wait()
		require.Zero(t, p.version, "nothing was rendered")
		require.Zero(t, p.segment.next, "the segment was not looked at")
		require.Equal(t, 101, p.history.n)
		f.set(func(f *fake) { f.now.Levels[0].Away = true })
		stop()
	})
}

// TestMapRests: for a hundred times as long as it took, and for five seconds at least.
func TestMapRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o Options
		o.Dir = t.TempDir()
		segment(t, &o, "a")
		var m segmentMap
		m.look("segment", o.Dir)
		require.NoError(t, m.err)
		first := m.drawn
		time.Sleep(mapRest - 1)
		m.look("segment", o.Dir)
		require.Same(t, first, m.drawn)
		time.Sleep(time.Nanosecond)
		m.look("segment", o.Dir)
		require.NotSame(t, first, m.drawn)
		m.next = time.Time{}
		m.look("none", o.Dir)
		require.Error(t, m.err)
	})
}

// TestMapView: bytes by state add up to the ring, and neighbours that look alike are one.
func TestMapView(t *testing.T) {
	var o Options
	o.Dir = t.TempDir()
	l := segment(t, &o, "a", "b", "c")
	_, err := l.Lease(t.Context(), tier.LeaseOptions{ID: "lease", Owner: "test"})
	require.NoError(t, err)
	m, err := drawn("segment", o.Dir)
	require.NoError(t, err)
	v := newMapView(m)
	require.Equal(t, mapColumns, v.Width)
	cells := 0
	for i, r := range v.Runs {
		cells += r.Width
		require.LessOrEqual(t, r.X+r.Width, mapColumns)
		if i > 0 && v.Runs[i-1].Y == r.Y {
			require.False(t, v.Runs[i-1].Class == r.Class && v.Runs[i-1].Opacity == r.Opacity, "two runs that look alike")
		}
	}
	require.Len(t, m.Cells, cells)
	require.Equal(t, "evictable", v.Runs[0].Class)
	require.Equal(t, "free", v.Runs[len(v.Runs)-1].Class)
	require.Equal(t, "evictable", v.Legend[0].Name)
	require.Equal(t, size(m.Summary.Size-m.Summary.Used), v.Legend[len(v.Legend)-1].Size)
}

// TestSearch: by a part of a key, bounded, one at a time, and for a whole key in all levels.
func TestSearch(t *testing.T) {
	names := []string{"needle-1", "needle-2"}
	for i := range 1000 {
		names = append(names, fmt.Sprintf("hay-%d", i))
	}
	p, f := newPage(t, func(o *Options) { segment(t, o, names...) })
	w, n := get(t, p, Path+"objects?q=needle")
	require.Equal(t, 200, w.Code)
	require.Contains(t, textOf(n), "2 found; 1 002 objects were looked at")
	require.Contains(t, w.Body.String(), `href="objects?space=space&amp;name=needle-1"`)
	require.Contains(t, textOf(n), "space/needle-1 evictable 100 bytes")
	_, n = get(t, p, Path+"objects?q=space/hay")
	require.Contains(t, textOf(n), fmt.Sprintf("%d shown; there may be more", mostFound))
	_, n = get(t, p, Path+"objects?q=none")
	require.Contains(t, textOf(n), "0 found")

	f.set(func(f *fake) {
		f.found = tier.Located{Found: tier.Found{Object: tier.Object{Size: 77, Tenant: "team", Parent: "older", Cost: time.Second, Note: []byte("uint8 3")}}, Levels: []string{"memory", "disk"}}
		f.leases = []wire.Lease{{Name: "s1/lease", Client: "engine", PID: 12, Pinned: 1, Bytes: 77}}
	})
	_, n = get(t, p, Path+"objects?space=space&name=needle-1")
	for _, want := range []string{"needle-1 of space", "levels memory disk", "bytes 77 bytes", "tenant team", "parent older", "again 1.0 s", "note uint8 3", "s1/lease engine 12 1 pinned, 0 reserved"} {
		require.Contains(t, textOf(n), want)
	}
	f.set(func(f *fake) { f.found, f.leases = tier.Located{Found: tier.Found{Err: tier.ErrNotFound}}, nil })
	_, n = get(t, p, Path+"objects?space=space&name=gone")
	require.Contains(t, textOf(n), tier.ErrNotFound.Error())
	require.Contains(t, textOf(n), "No lease has it.")

	for _, q := range []string{"name=a&space=" + strings.Repeat("x", tier.MaxSpace+1), "space=a", "q=" + strings.Repeat("x", mostQuery+1), "space=a&name=%00"} {
		w, _ = get(t, p, Path+"objects?"+q)
		require.Equal(t, http.StatusBadRequest, w.Code, q)
	}
	p.turn <- struct{}{}
	w, n = get(t, p, Path+"objects?q=needle")
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.Contains(t, textOf(n), "another search is under way")
	<-p.turn
	w, _ = get(t, p, Path+"objects?q=needle")
	require.Equal(t, 200, w.Code)
}

// TestSearchRests for as long as it works, and ends with its caller.
func TestSearchRests(t *testing.T) {
	var o Options
	o.Dir = t.TempDir()
	names := make([]string, 3*searchPiece)
	for i := range names {
		names[i] = fmt.Sprint(i)
	}
	segment(t, &o, names...)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, looked, more, err := search(ctx, "segment", o.Dir, "x")
	require.NoError(t, err)
	require.True(t, more)
	require.Equal(t, searchPiece, looked, "it does not go on without a rest")
	_, _, _, err = search(t.Context(), "none", o.Dir, "x")
	require.Error(t, err)
}

// TestMemoryIsFlat: what a page keeps after three hours is what it keeps after one, when the ring of the hour is full.
func TestMemoryIsFlat(t *testing.T) {
	p, f := newPage(t, func(o *Options) { segment(t, o, "a") })
	wake, err := p.open()
	require.NoError(t, err)
	defer p.leave(wake)
	log := slog.New(p.o.Events.Handler(slog.DiscardHandler))
	i := 0
	hours := func(n int) uint64 {
		for range n * steps {
			i++
			f.set(func(f *fake) {
				f.now.Backlog, f.now.Levels[0].Hits = i, int64(i)
				f.now.Refused = []Refused{{"objects", "full", uint64(i / 50)}}
			})
			log.Info("event", "number", i)
			p.sample()
			if i%60 == 0 {
				p.charts, p.segment.next = time.Time{}, time.Time{}
				p.refresh(false)
			}
		}
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	one, three := hours(1), hours(2)
	t.Logf("%d bytes of heap after an hour, %d after three", one, three)
	require.Less(t, three, one+256<<10, "bytes")
}
