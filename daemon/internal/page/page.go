package page

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/ringcache/ringcache/daemon/internal/registry"
	"github.com/ringcache/ringcache/daemon/wire"
	"github.com/ringcache/ringcache/tier"
)

// Options describe a Page. Functions are called from any goroutine, may take a moment, and are called before there is a
// store, too.
type Options struct {
	Version      string
	Segment, Dir string // the name of the segment, and the folder of shared memory; empty is /dev/shm
	Size         int64  // of the segment
	Streams      int    // the most at a time
	Bounds       []time.Duration
	Events       *Events
	Logger       *slog.Logger

	// Now returns what there is.
	Now func() Now
	// Holdings lists sessions, at most n, those that hold most first.
	Holdings func(n int) []registry.Holding
	// Find asks every level about an object, and which leases have it.
	Find func(ctx context.Context, k tier.Key) (tier.Located, []wire.Lease)
}

// Page is the page of a daemon.
type Page struct {
	o      Options
	closed chan struct{} // when Run has ended
	turn   chan struct{} // of a search

	// rendering is held by who renders. It guards what follows, and comes before mu.
	rendering sync.Mutex
	at        time.Time // of the last rendering
	segment   segmentMap
	charts    time.Time // when the curves were drawn

	mu      sync.Mutex // guards what follows
	history history
	storms  map[string]bool
	parts   [len(partNames)]part
	version uint64 // of the newest part
	streams map[chan struct{}]struct{}
	ended   bool
}

// partNames are the parts that are sent again when they change, and the templates that they are made by.
var partNames = [...]string{"status", "levels", "hour", "calls", "sessions", "pending", "events", "map"}

// part is the HTML of a part. The bytes are never changed.
type part struct {
	html    []byte
	version uint64
}

const (
	fresh     = time.Second      // for how long what was rendered counts as new
	chartRest = 15 * time.Second // between two drawings of the curves
)

// New returns a page, which shows nothing before Run.
func New(o Options) *Page {
	p := &Page{o: o, closed: make(chan struct{}), turn: make(chan struct{}, 1), streams: map[chan struct{}]struct{}{}}
	p.history.bounds = o.Bounds
	return p
}

// Run looks at the counters until ctx ends, and then ends the streams. It may be called once.
func (p *Page) Run(ctx context.Context) {
	defer func() {
		p.mu.Lock()
		p.ended = true
		p.mu.Unlock()
		close(p.closed)
	}()
	step := time.NewTicker(Step)
	defer step.Stop()
	p.sample()
	for {
		select {
		case <-ctx.Done():
			return
		case <-step.C:
			p.sample()
			if p.watched() {
				p.refresh(false)
			}
		case <-p.o.Events.changed:
			if !p.watched() {
				continue
			}
			p.refresh(true)
			rest := time.NewTimer(eventRest) // a burst of events is shown at once
			select {
			case <-rest.C:
			case <-ctx.Done():
				rest.Stop()
			}
		}
	}
}

const eventRest = 200 * time.Millisecond

// sample notes what there is.
func (p *Page) sample() {
	now := p.o.Now()
	p.mu.Lock()
	past, before, ok := p.history.last()
	p.history.add(now)
	storms := p.storms
	p.mu.Unlock()
	if !ok {
		return
	}
	storms = p.o.Events.watch(past, before, now, storms)
	p.mu.Lock()
	p.storms = storms
	p.mu.Unlock()
}

// watched reports whether there is a stream.
func (p *Page) watched() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.streams) > 0
}

// refresh renders the parts anew, or events alone, and wakes the streams if one has changed.
func (p *Page) refresh(events bool) {
	p.rendering.Lock()
	defer p.rendering.Unlock()
	v := p.view(events)
	var changed [len(partNames)][]byte
	for i, name := range partNames {
		switch {
		case events && name != "events":
			continue
		case name == "hour" && v.Charts == nil, name == "map" && v.Map == nil:
			continue // as it was
		}
		var b bytes.Buffer
		if err := templates.ExecuteTemplate(&b, name, v); err != nil {
			p.o.Logger.Error("a part of the page can't be rendered: please report this", "part", name, "error", err)
			continue
		}
		changed[i] = b.Bytes()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, html := range changed {
		if html == nil || p.parts[i].html != nil && bytes.Equal(html, p.parts[i].html) {
			continue
		}
		p.version++
		p.parts[i] = part{html, p.version}
	}
	for wake := range p.streams {
		select {
		case wake <- struct{}{}:
		default: // it has not yet taken what was there
		}
	}
	if !events {
		p.at = time.Now()
	}
}

// current returns the parts, rendered anew unless they are new.
func (p *Page) current() [len(partNames)]part {
	p.rendering.Lock()
	old := time.Since(p.at) > fresh
	p.rendering.Unlock()
	if old {
		p.refresh(false)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.parts
}

var errStreams = errors.New("too many pages are open")

// open adds a stream, which is woken when there is something new.
func (p *Page) open() (wake chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.ended:
		return nil, errors.New("the daemon ends")
	case len(p.streams) >= p.o.Streams:
		return nil, errStreams
	}
	wake = make(chan struct{}, 1)
	p.streams[wake] = struct{}{}
	return wake, nil
}

func (p *Page) leave(wake chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.streams, wake)
}
