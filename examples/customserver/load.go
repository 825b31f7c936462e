package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"math/rand/v2"
	"mime/multipart"
	"net/http"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/ringcache/ringcache/mmcache"
)

const maxForm = 3 // images of one request

// runLoad has clients post photos to a server and fails unless every answer is
// right.
func runLoad(ctx context.Context, out io.Writer, o options, s *server, url string) error {
	samples, err := makeSamples(o.Photos, int64(o.Capacity)<<20*2, rand.New(rand.NewPCG(o.Seed, 1)))
	if err != nil {
		return err
	}
	events, unsubscribe := s.cache.Subscribe(1 << 16)
	start := time.Now()
	l := &load{url: url, samples: samples, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: o.Clients}}}
	defer l.client.CloseIdleConnections()

	l.refused(ctx, http.StatusBadRequest, []byte("this is no image"))
	l.refused(ctx, http.StatusBadRequest, samples[0].file[:len(samples[0].file)/2])
	l.refused(ctx, http.StatusRequestEntityTooLarge, enormous())
	l.refused(ctx, http.StatusRequestEntityTooLarge, make([]byte, maxBody+1))
	var wg sync.WaitGroup
	for range o.Clients {
		wg.Go(func() {
			for i := l.next.Add(1); i <= int64(o.Requests) && ctx.Err() == nil; i = l.next.Add(1) {
				if i == int64(o.Requests/2) {
					s.engine.restart() // nobody must notice
				}
				l.request(ctx, o.Seed, uint64(i))
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	unsubscribe()
	var evicted, lost int64
	for ev := range events {
		switch ev.Kind {
		case "evicted":
			evicted++
		case "lost":
			lost++
		}
	}
	st, err := l.stats(ctx)
	if err != nil {
		return errors.Join(l.failed(), err)
	}
	report(out, o, l, s, st, evicted, lost, took)
	if st.InFlight != 0 {
		return errors.Join(l.failed(), fmt.Errorf("%d bytes are in flight though all requests have ended", st.InFlight))
	}
	return errors.Join(l.failed(), ctx.Err(), s.cache.CheckStructure())
}

// load is the clients' state.
type load struct {
	url     string
	samples []sample
	client  *http.Client
	next    atomic.Int64 // request
	right   atomic.Int64 // answers
	refusal atomic.Int64 // that were due

	mu   sync.Mutex
	errs []error
}

func (l *load) fail(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errs = append(l.errs, fmt.Errorf(format, args...))
}

// failed returns the first few errors.
func (l *load) failed() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.errs[:min(len(l.errs), 10)]...)
}

// request posts one photo or a few, and compares the answers. Neighbours in the
// sequence want the same photos, as they do when something is popular.
func (l *load) request(ctx context.Context, seed, i uint64) {
	rnd := rand.New(rand.NewPCG(seed, 2+i/3))
	picks := make([]sample, 1+max(0, rnd.IntN(2*maxForm)-maxForm))
	for j := range picks {
		picks[j] = l.samples[min(rnd.IntN(len(l.samples)), rnd.IntN(len(l.samples)))]
	}
	var body bytes.Buffer
	kind := "application/octet-stream"
	if len(picks) == 1 {
		body.Write(picks[0].file)
	} else {
		form := multipart.NewWriter(&body)
		for j, p := range picks {
			w, err := form.CreateFormFile(fmt.Sprint("image", j), "image")
			if err == nil {
				_, err = w.Write(p.file)
			}
			if err != nil {
				l.fail("request %d: %w", i, err)
				return
			}
		}
		kind = form.FormDataContentType()
		_ = form.Close() // a buffer does not fail
	}
	code, got, err := l.post(ctx, kind, &body)
	switch {
	case err != nil:
		l.fail("request %d: %w", i, err)
		return
	case code != http.StatusOK || len(got.Answers) != len(picks):
		l.fail("request %d: status %d, %d answers for %d images: %s", i, code, len(got.Answers), len(picks), got.Error)
		return
	}
	for j, p := range picks {
		a := got.Answers[j]
		if math.Abs(a.Mean-p.mean) > 1e-9 || a.Width != p.size.X || a.Height != p.size.Y {
			l.fail("request %d: got %v of %dx%d, want %v of %v", i, a.Mean, a.Width, a.Height, p.mean, p.size)
			continue
		}
		l.right.Add(1)
	}
}

// refused posts what the server must not take.
func (l *load) refused(ctx context.Context, want int, body []byte) {
	code, got, err := l.post(ctx, "image/png", bytes.NewReader(body))
	if err != nil || code != want || got.Error == "" {
		l.fail("a bad body: status %d, want %d, with %q: %w", code, want, got.Error, err)
		return
	}
	l.refusal.Add(1)
}

func (l *load) post(ctx context.Context, kind string, body io.Reader) (code int, got reply, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url+"/v1/embed", body)
	if err != nil {
		return 0, got, err
	}
	req.Header.Set("Content-Type", kind)
	res, err := l.client.Do(req)
	if err != nil {
		return 0, got, err
	}
	err = json.NewDecoder(res.Body).Decode(&got)
	return res.StatusCode, got, errors.Join(err, res.Body.Close())
}

func (l *load) stats(ctx context.Context) (st mmcache.Stats, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.url+"/stats", nil)
	if err != nil {
		return st, err
	}
	res, err := l.client.Do(req)
	if err != nil {
		return st, err
	}
	err = json.NewDecoder(res.Body).Decode(&st)
	return st, errors.Join(err, res.Body.Close())
}

// enormous is a PNG file whose header announces 30000 by 30000 pixels.
func enormous() []byte {
	ihdr := append([]byte("IHDR"), 0, 0, 0x75, 0x30, 0, 0, 0x75, 0x30, 8, 2, 0, 0, 0)
	b := append([]byte("\x89PNG\r\n\x1a\n\x00\x00\x00\x0d"), ihdr...)
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(ihdr))
}

func report(out io.Writer, o options, l *load, s *server, st mmcache.Stats, evicted, lost int64, took time.Duration) {
	var set int64
	for _, x := range l.samples {
		set += x.bytes()
	}
	const mib = 1 << 20
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(t, "%s\t"+format+"\n", append([]any{name}, args...)...)
	}
	row("mode", "%s, %d MiB", o.Mode, o.Capacity)
	row("working set", "%d photos, %.1f MiB decoded", len(l.samples), float64(set)/mib)
	row("requests", "%d by %d clients in %.2f s", o.Requests, o.Clients, took.Seconds())
	row("answers", "%d right, %d wrong or failed; %d bad requests refused", l.right.Load(), len(l.errs), l.refusal.Load())
	row("hits", "%d of %d (%.0f%%)", st.Hits, st.Total, 100*float64(st.Hits)/float64(max(st.Total, 1)))
	row("decoded", "%d, %d waited for another request's", st.Produced, st.Coalesced)
	row("cached", "%d photos, %.1f MiB; %d evictions, %d not cached", st.CachedItems, float64(st.CachedBytes)/mib, evicted,
		st.RefusedFull+st.RefusedTooLarge+st.RefusedInUse)
	if lost > 0 { // a repair changes what is cached at once, without an event for each photo
		row("", "gaps in the events: %d", lost)
	}
	row("back-pressure", "%d requests waited, %.2f s together", st.Waits, st.Waited.Seconds())
	row("in flight", "%.1f MiB at most, of %.0f", float64(s.peak.Load())/mib, float64(st.InFlightLimit)/mib)
	if st.Repaired > 0 {
		row("engine restart", "%d items missed, %d requests sent again, %d repairs", st.Missed, st.Resent, st.Repaired)
	}
	_ = t.Flush() // to a terminal
}
