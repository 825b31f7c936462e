package daemon

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringcache/ringcache/daemon/internal/lmcache"
	"github.com/ringcache/ringcache/daemon/internal/registry"
	"github.com/ringcache/ringcache/tier"
)

// lmcacheMetrics are those that were made below.
var lmcacheMetrics []metric

func lmcacheMetric(kind prometheus.ValueType, name, help string, labels ...string) metric {
	m := metric{prometheus.NewDesc("lmcache_mp_"+name, help, labels, nil), kind}
	lmcacheMetrics = append(lmcacheMetrics, m)
	return m
}

// Metrics of LMCache's own server, with its names and types, that mean the same here. Its labels with texts of
// clients (model, salt, worker) are not here. L1 is the segment, with the objects of all protocols; L2 are all
// levels below it.
var (
	lLookups     = lmcacheMetric(prometheus.CounterValue, "lookups_requests_total", "Look-ups that have an answer.")
	lEarly       = lmcacheMetric(prometheus.CounterValue, "lookup_early_exit_requests_total", "Look-ups that were answered without a look at the cache.", "reason")
	lRequested   = lmcacheMetric(prometheus.CounterValue, "lookup_requested_tokens_total", "Tokens of whole chunks that were looked up, without those that engines have themselves.")
	lHit         = lmcacheMetric(prometheus.CounterValue, "lookup_hit_tokens_total", "Tokens of lmcache_mp_lookup_requested_tokens_total that were found.")
	lHitL1       = lmcacheMetric(prometheus.CounterValue, "lookup_hit_l1_tokens_total", "Tokens of lmcache_mp_lookup_hit_tokens_total that were in memory at once.")
	lHitL2       = lmcacheMetric(prometheus.CounterValue, "lookup_hit_l2_tokens_total", "Tokens of lmcache_mp_lookup_hit_tokens_total that came from a lower level.")
	lPrompt      = lmcacheMetric(prometheus.CounterValue, "lookup_prompt_tokens_total", "Tokens of all prompts that were looked up.")
	lRequestHit  = lmcacheMetric(prometheus.CounterValue, "lookup_request_hit_tokens_total", "Tokens of prompts that the engine had itself, or that were found.")
	lActive      = lmcacheMetric(prometheus.GaugeValue, "active_prefetch_jobs", "Look-ups that wait for lower levels.")
	lLoaded      = lmcacheMetric(prometheus.CounterValue, "num_chunks_loaded_total", "Chunks that workers were given, each worker for itself.")
	lRead        = lmcacheMetric(prometheus.CounterValue, "l1_read_chunks_total", "Objects that workers of LMCache were given.")
	lWrite       = lmcacheMetric(prometheus.CounterValue, "l1_write_chunks_total", "Objects that came into memory, from clients and from lower levels.")
	lEvicted     = lmcacheMetric(prometheus.CounterValue, "l1_evicted_chunks_total", "Objects that were evicted from memory.")
	lUsed        = lmcacheMetric(prometheus.GaugeValue, "l1_memory_usage_bytes", "Bytes of objects in memory.")
	lRatio       = lmcacheMetric(prometheus.GaugeValue, "l1_usage_ratio", "The part of memory that objects take, 0 to 1.")
	lNoRoom      = lmcacheMetric(prometheus.CounterValue, "l1_allocation_failure_chunks_total", "Objects for which there was no room in memory.", "during")
	lNotRead     = lmcacheMetric(prometheus.CounterValue, "l1_read_failure_chunks_total", "Objects that a worker wanted to load, and did not get.", "during", "reason")
	lStored      = lmcacheMetric(prometheus.CounterValue, "l2_store_completed_objects_chunks_total", "Objects that were written to a lower level.")
	lPromoted    = lmcacheMetric(prometheus.CounterValue, "l2_prefetch_load_completed_chunks_total", "Objects that came from a lower level into memory.")
	lNotPromoted = lmcacheMetric(prometheus.CounterValue, "l2_prefetch_failure_chunks_total", "Objects of a lower level that did not get into memory.", "reason")
	lLowerGone   = lmcacheMetric(prometheus.CounterValue, "l2_evicted_objects_chunks_total", "Objects that were evicted from lower levels.")
	lEvents      = lmcacheMetric(prometheus.GaugeValue, "kv_events_log_depth", "Events of KV that a subscriber can still get.")
	lLowerUsed   = lmcacheMetric(prometheus.GaugeValue, "l2_usage_bytes", "Bytes of objects of a lower level. Not there if unknown.", "l2_name")
)

// collectLMCache collects what LMCache's own server would report.
func collectLMCache(n lmcache.Counts, use registry.Use, store *tier.Store,
	send func(m metric, v float64, labels ...string)) {
	count := func(m metric, v int64, labels ...string) { send(m, float64(v), labels...) }
	count(lLookups, n.Lookups)
	for i, reason := range lmcache.EarlyExitReasons {
		count(lEarly, n.EarlyExits[i], reason)
	}
	count(lRequested, n.Requested)
	count(lHit, n.HitMemory+n.HitLower)
	count(lHitL1, n.HitMemory)
	count(lHitL2, n.HitLower)
	count(lPrompt, n.Prompt)
	count(lRequestHit, n.RequestHit)
	count(lActive, int64(n.Pending))
	count(lLoaded, n.Loaded)
	count(lRead, n.Read)
	count(lEvents, int64(n.Events))
	count(lNotRead, n.NotRead, "l1_retrieve", "not_found")
	count(lNotRead, n.WriteLocked, "l1_retrieve", "write_locked")

	var written, promoted, noRoom, gone int64
	for _, x := range store.Counters() {
		switch {
		case x.Kind == "written":
			written += x.Count
		case x.Kind == "promoted":
			promoted += x.Count
		case x.Kind == "not promoted" && (x.Cause == "full" || x.Cause == "too large"):
			noRoom += x.Count
		case x.Kind == "not promoted" && x.Cause == "not found":
			gone += x.Count
		}
	}
	count(lWrite, use.Stored+promoted)
	count(lNoRoom, n.NoRoom, "l1_store")
	count(lNoRoom, noRoom, "l2_prefetch")
	count(lStored, written)
	count(lPromoted, promoted)
	count(lNotPromoted, noRoom, "l1_oom")
	count(lNotPromoted, gone, "not_found")

	var lowerGone int64
	for i, l := range store.State().Levels {
		u := l.Usage
		switch {
		case i == 0:
			count(lEvicted, max(0, u.Evicted))
			count(lUsed, max(0, u.Bytes))
			send(lRatio, ratio(u))
		default:
			lowerGone += max(0, u.Evicted)
			if u.Bytes >= 0 {
				count(lLowerUsed, u.Bytes, l.Name)
			}
		}
	}
	count(lLowerGone, lowerGone)
}

// ratio returns which part of a level is used, 0 if it has no limit.
func ratio(u tier.Usage) float64 {
	if u.Capacity <= 0 {
		return 0
	}
	return float64(max(0, u.Bytes)) / float64(u.Capacity)
}
