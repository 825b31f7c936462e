package daemon

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/ringcache/ringcache/daemon/internal/tracing"
	"github.com/ringcache/ringcache/daemon/wire"
	"github.com/ringcache/ringcache/tier"
)

// openTracer opens what the configuration says.
func (r *runner) openTracer(ctx context.Context) (*tracing.Tracer, error) {
	if r.config.OTLP == "" {
		return nil, nil //nolint:nilnil // nothing is configured
	}
	return tracing.Open(ctx, tracing.Options{
		URL: strings.TrimSuffix(r.config.OTLP, "/"), OneIn: r.config.OTLPOneIn, Version: r.o.Version, Logger: r.log,
	})
}

// trace begins the span of a request, if requests are traced and this one is to be. What it wants is noted before
// it is answered: what a lower level has may be in memory before the answer is sent.
func (s *Server) trace(q *wire.Request) tracing.Span {
	if s.tracer == nil {
		return tracing.Span{}
	}
	var caller tracing.Caller
	if q.Trace != "" {
		caller = func(field string) string {
			if field == "traceparent" {
				return q.Trace
			}
			return ""
		}
	}
	span := s.tracer.Start("ringcache "+string(q.Op), caller)
	if span.On() && (q.Op == wire.Pin || q.Op == wire.Commit) {
		keys := make([]tier.Key, len(q.Names))
		for i, name := range q.Names {
			keys[i] = tier.Key{Space: q.Space, Name: name}
		}
		span.Want(keys...)
	}
	return span
}

// traced ends the span of a request with its answer.
func traced(span tracing.Span, q *wire.Request, p *wire.Reply) {
	if !span.On() {
		return
	}
	found := 0
	for _, it := range p.Items {
		if slices.Contains([]wire.Status{wire.StatusHit, wire.StatusOK, wire.StatusReserved}, it.Status) {
			found++
		}
	}
	span.Count(max(len(q.Names)+len(q.Objects), len(p.Items)), found)
	failure := ""
	if p.Error != nil {
		failure = p.Error.Text
	}
	span.End(failure)
}

// traceHTTP makes spans of those requests of HTTP that have a trace context.
func traceHTTP(tracer *tracing.Tracer, next http.Handler) http.Handler {
	if tracer == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Header.Get("traceparent") == "" {
			next.ServeHTTP(w, q)
			return
		}
		span := tracer.Start("HTTP "+q.Method, q.Header.Get)
		next.ServeHTTP(w, q)
		failure := ""
		if a, ok := w.(*answer); ok && a.status >= http.StatusInternalServerError {
			failure = http.StatusText(a.status)
		}
		span.End(failure)
	})
}
