package page

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ringcache/ringcache/internal/terminal"
)

const (
	mostEvents = 100  // that are kept
	mostText   = 300  // bytes of a text or a value
	mostAttrs  = 1500 // bytes of all values of an event
)

// Events are what happened last: the lines of the daemon's log, from info on, and what the page finds by its
// counters. There is a most of them.
type Events struct {
	changed chan struct{} // has a value when there is another one

	mu  sync.Mutex
	all []event // oldest first
}

type event struct {
	At      time.Time
	Level   slog.Level
	Text    string
	Details string // of the line in the log

	key   string // of one that is counted; empty of others
	first time.Time
	count uint64
}

// NewEvents returns no events.
func NewEvents() *Events { return &Events{changed: make(chan struct{}, 1)} }

// add adds an event, for which the oldest one goes.
func (e *Events) add(x event) {
	x.Text, x.Details = cut(x.Text, mostText), cut(x.Details, mostAttrs)
	e.mu.Lock()
	if len(e.all) == mostEvents {
		e.all = slices.Delete(e.all, 0, 1)
	}
	e.all = append(e.all, x)
	e.mu.Unlock()
	e.wake()
}

// count adds n of what has happened. What happens again within a minute is one event: it is counted on.
func (e *Events) count(at time.Time, key string, n uint64, text func(n uint64) string) {
	e.mu.Lock()
	i := slices.IndexFunc(e.all, func(x event) bool { return x.key == key && at.Sub(x.first) < time.Minute })
	x := event{key: key, first: at, Level: slog.LevelWarn}
	if i >= 0 {
		x = e.all[i]
		e.all = slices.Delete(e.all, i, i+1)
	}
	e.mu.Unlock()
	x.At, x.count = at, x.count+n
	x.Text = text(x.count)
	e.add(x)
}

// last returns the last n events, newest first.
func (e *Events) last(n int) []event {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := slices.Clone(e.all[max(0, len(e.all)-n):])
	slices.Reverse(out)
	return out
}

func (e *Events) wake() {
	select {
	case e.changed <- struct{}{}:
	default:
	}
}

// cut bounds a text.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && s[most]&0xc0 == 0x80 { // within a character
		most--
	}
	return s[:most] + "…"
}

// Handler returns a handler that hands records on to another one, and notes them. What is noted does not depend on
// which levels the other one wants.
func (e *Events) Handler(next slog.Handler) slog.Handler { return &handler{next: next, events: e} }

type handler struct {
	next   slog.Handler
	events *Events
	attrs  string // of the logger
	group  string
}

// Enabled implements slog.Handler.
func (h *handler) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelInfo || h.next.Enabled(ctx, l)
}

// Handle implements slog.Handler.
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo {
		var b strings.Builder
		b.WriteString(h.attrs)
		r.Attrs(func(a slog.Attr) bool {
			appendAttr(&b, h.group, a)
			return b.Len() < mostAttrs
		})
		h.events.add(event{At: r.Time, Level: r.Level, Text: r.Message, Details: strings.TrimPrefix(b.String(), " ")})
	}
	if !h.next.Enabled(ctx, r.Level) {
		return nil
	}
	return h.next.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	n := *h
	n.next = h.next.WithAttrs(attrs)
	var b strings.Builder
	b.WriteString(h.attrs)
	for _, a := range attrs {
		appendAttr(&b, h.group, a)
	}
	n.attrs = cut(b.String(), mostAttrs)
	return &n
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	n := *h
	n.next, n.group = h.next.WithGroup(name), h.group+name+"."
	return &n
}

// appendAttr writes " key=value", in which nothing can pass for another key.
func appendAttr(b *strings.Builder, group string, a slog.Attr) {
	v := a.Value.Resolve()
	if v.Kind() == slog.KindGroup {
		if a.Key != "" {
			group += a.Key + "."
		}
		for _, x := range v.Group() {
			appendAttr(b, group, x)
		}
		return
	}
	if a.Key == "" {
		return
	}
	b.WriteString(" " + group + a.Key + "=" + terminal.Quote(cut(v.String(), mostText)))
}
