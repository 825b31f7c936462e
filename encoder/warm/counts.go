package warm

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	maxMetrics  = 16 << 20         // bytes that are read of an engine's metrics
	metricsTime = 10 * time.Second // that they may take
	settleTime  = time.Second      // until what an answer is about is in the metrics, too: the engine counts beside answering
	settlePause = 20 * time.Millisecond
)

// Counters of the engine's connector, python/src/ringcache/vllm/_stats.py.
const (
	hitsMetric   = "vllm:ringcache_encoder_hits_total"
	missesMetric = "vllm:ringcache_encoder_misses_total"
)

// counts are what an engine has loaded and encoded since its start.
type counts struct{ loaded, encoded int }

// counts asks for the engine's metrics. They are unknown if it has none, or none of a connector. An engine
// that can't be reached has counted nothing: it is yet to start, and begins with zeros.
func (e *endpoint) counts(ctx context.Context) (c counts, known bool) {
	ctx, cancel := context.WithTimeout(ctx, min(e.timeout, metricsTime))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.base+"/metrics", nil)
	if err != nil {
		return c, false
	}
	if e.key != "" {
		req.Header.Set("Authorization", "Bearer "+e.key)
	}
	res, err := e.client.Do(req)
	if err != nil {
		_, absent := errors.AsType[unreachableError](e.failed(ctx, err))
		return c, absent
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return c, false
	}
	return parseCounts(io.LimitReader(res.Body, maxMetrics))
}

// parseCounts reads metrics in Prometheus' text form, and sums over the engines of a server. They are known
// if hits and misses are there.
func parseCounts(from io.Reader) (c counts, known bool) {
	hits, misses := false, false
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		name, rest, labels := strings.Cut(lines.Text(), "{")
		if labels {
			_, rest, _ = strings.Cut(rest, "} ") // of a label's text that has this, the rest is no number
		} else {
			name, rest, _ = strings.Cut(name, " ")
		}
		if name != hitsMetric && name != missesMetric {
			continue
		}
		value, _, _ := strings.Cut(rest, " ") // a time may follow
		n, err := strconv.ParseFloat(value, 64)
		if err != nil || !(n >= 0 && n <= 1<<53) { // NaN, too
			return counts{}, false
		}
		if name == hitsMetric {
			hits, c.loaded = true, c.loaded+int(n)
		} else {
			misses, c.encoded = true, c.encoded+int(n)
		}
	}
	return c, hits && misses && lines.Err() == nil
}

// counted notes what the engine has loaded and encoded since before.
func (r *run) counted(ctx context.Context, before counts) {
	for end := time.Now().Add(settleTime); ; {
		after, ok := r.endpoint.counts(ctx)
		loaded, encoded := after.loaded-before.loaded, after.encoded-before.encoded
		if !ok || loaded < 0 || encoded < 0 { // another engine
			return
		}
		if loaded+encoded >= r.result.Sent || time.Now().After(end) {
			r.result.Counted, r.result.Loaded, r.result.Encoded = true, loaded, encoded
			return
		}
		if sleep(ctx, settlePause) != nil {
			return
		}
	}
}
