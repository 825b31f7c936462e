// Package tracing makes spans of what a daemon does, and sends them by OTLP: of requests, and of the calls of lower
// levels (look-ups, fetches, write-backs) that bring about what requests want.
//
// A request's span is a child of its caller's, if the request has a trace context (W3C's traceparent). A call of a level
// is a child of the last traced request that wanted one of its objects, see [Span.Want]: requests are answered at once,
// and levels are called later. What has no such request begins a trace of its own, one time in so many.
//
// A nil Tracer, and a Span of one, do nothing, and allocate nothing.
//
// See docs/decisions.md, "Spans are OpenTelemetry's, and off".
package tracing

import (
	"container/list"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/ringcache/ringcache/internal/loglimit"
	"github.com/ringcache/ringcache/tier"
)

// maxInterests is how many objects are remembered for which requests that are traced wait. Beyond, the oldest go.
const maxInterests = 4096

// Options describe a Tracer.
type Options struct {
	// URL is that of a collector, such as http://127.0.0.1:4318. Spans go to its path /v1/traces.
	URL string
	// OneIn is how many requests without a trace context there are for each one that is traced. 1 is all.
	OneIn   int
	Version string
	Logger  *slog.Logger
}

// Tracer makes spans. Any goroutine may use it.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer

	mu        sync.Mutex // guards what follows
	interests map[tier.Key]*list.Element
	order     list.List // of interest, oldest first
}

// interest is an object that a traced request asked for, or has stored.
type interest struct {
	key tier.Key
	by  trace.SpanContext
}

// Open returns a Tracer. It does not connect yet: a collector that is away costs spans and a line of the log each minute.
// The process has one at a time, since what OpenTelemetry's library reports about itself is the process's.
func Open(ctx context.Context, o Options) (*Tracer, error) {
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(o.URL+"/v1/traces"))
	if err != nil {
		return nil, fmt.Errorf("otlp %s: %w", o.URL, err)
	}
	var failed loglimit.Limit
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		failed.Warn(o.Logger, "spans can't be sent, and are dropped: look whether the collector runs, and whether otlp names it", "otlp", o.URL, "error", err)
	}))
	about, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", "ringcache"), attribute.String("service.version", o.Version),
	), resource.WithFromEnv(), resource.WithHost(), resource.WithProcessPID())
	if err != nil { // of a variable that can't be read: the rest is there
		o.Logger.Warn("what OTEL_RESOURCE_ATTRIBUTES says of spans can't be read: correct it", "error", err)
	}
	t := &Tracer{interests: map[tier.Key]*list.Element{}}
	t.provider = sdk.NewTracerProvider(
		sdk.WithBatcher(exporter), sdk.WithResource(about),
		sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(1/float64(max(1, o.OneIn))))),
	)
	t.tracer = t.provider.Tracer("github.com/ringcache/ringcache")
	return t, nil
}

// closeTime is how long the end waits for a collector.
const closeTime = 2 * time.Second

// Close sends what is left. Spans that end later are dropped.
func (t *Tracer) Close() {
	if t == nil {
		return
	}
	ctx, stop := context.WithTimeout(context.Background(), closeTime)
	defer stop()
	if err := t.provider.Shutdown(ctx); err != nil {
		otel.Handle(err)
	}
}

// Span is a span that is being recorded. The zero value is none.
type Span struct {
	t    *Tracer
	span trace.Span
}

// Caller reads the trace context of a caller, of which get returns the fields, "" for one that is not there.
type Caller func(field string) string

// Get implements propagation.TextMapCarrier.
func (c Caller) Get(field string) string { return c(field) }

// Set implements propagation.TextMapCarrier.
func (Caller) Set(string, string) {}

// Keys implements propagation.TextMapCarrier.
func (Caller) Keys() []string { return nil }

// Start begins the span of a request. caller may be nil. A trace context that can't be read is none.
func (t *Tracer) Start(name string, caller Caller) Span {
	if t == nil {
		return Span{}
	}
	ctx := context.Background()
	if caller != nil {
		ctx = propagation.TraceContext{}.Extract(ctx, caller)
	}
	_, span := t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer))
	if !span.IsRecording() {
		return Span{}
	}
	return Span{t, span}
}

// On reports whether the span is recorded.
func (s Span) On() bool { return s.t != nil }

// Want notes that the request wants objects, or has stored them: calls of levels that move one of them belong to it.
func (s Span) Want(keys ...tier.Key) {
	if s.t == nil {
		return
	}
	t := s.t
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range keys[:min(len(keys), maxInterests)] {
		if e := t.interests[k]; e != nil {
			t.order.Remove(e)
		}
		t.interests[k] = t.order.PushBack(interest{k, s.span.SpanContext()})
		if t.order.Len() > maxInterests {
			delete(t.interests, t.order.Remove(t.order.Front()).(interest).key)
		}
	}
}

// Count notes how many objects the request is about, and how many of them there are, or were taken.
func (s Span) Count(objects, found int) {
	if s.t == nil {
		return
	}
	s.span.SetAttributes(attribute.Int("ringcache.objects", objects), attribute.Int("ringcache.found", found))
}

// End ends the span. failure is why the request was refused, "" if it was not.
func (s Span) End(failure string) {
	if s.t == nil {
		return
	}
	if failure != "" {
		s.span.SetStatus(codes.Error, failure)
	}
	s.span.End()
}

// Work makes the span of a call of a level, which has ended.
func (t *Tracer) Work(w tier.Work) {
	ctx := context.Background()
	by := t.whoAskedFor(w.Keys)
	if len(by) > 0 {
		ctx = trace.ContextWithRemoteSpanContext(ctx, by[0])
		by = by[1:]
	}
	links := make([]trace.Link, len(by))
	for i, other := range by {
		links[i].SpanContext = other
	}
	_, span := t.tracer.Start(ctx, w.Kind+" "+w.Level, trace.WithTimestamp(w.Begin), trace.WithLinks(links...),
		trace.WithSpanKind(trace.SpanKindInternal))
	if span.IsRecording() {
		span.SetAttributes(
			attribute.String("ringcache.level", w.Level), attribute.Int("ringcache.objects", len(w.Keys)),
			attribute.Int("ringcache.found", w.Done), attribute.Int64("ringcache.bytes", w.Bytes),
		)
		if w.Err != nil {
			span.SetStatus(codes.Error, w.Err.Error())
		}
	}
	span.End(trace.WithTimestamp(w.Begin.Add(w.Took)))
}

// whoAskedFor returns the spans of the traced requests that wanted objects last, each once.
func (t *Tracer) whoAskedFor(keys []tier.Key) (by []trace.SpanContext) {
	t.mu.Lock()
	defer t.mu.Unlock()
	seen := map[trace.SpanID]bool{}
	for _, k := range keys {
		if e := t.interests[k]; e != nil {
			if x := e.Value.(interest).by; !seen[x.SpanID()] {
				seen[x.SpanID()] = true
				by = append(by, x)
			}
		}
	}
	return by
}
