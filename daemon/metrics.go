package daemon

import (
	"runtime/debug"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// metrics returns what /metrics serves.
func (r *runner) metrics() *prometheus.Registry {
	g := prometheus.NewRegistry()
	g.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		&collector{r},
	)
	return g
}

// collector makes metrics of the counters of the server and the store, when somebody asks. client_golang does the
// rest (escaping, content types, compression); OpenTelemetry would bring many more modules.
type collector struct{ r *runner }

// metric is a description, and whether its values only grow.
type metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

// allMetrics are those that were made below.
var allMetrics []metric

func newMetric(kind prometheus.ValueType, name, help string, labels []string) metric {
	m := metric{prometheus.NewDesc("ringcache_"+name, help, labels, nil), kind}
	allMetrics = append(allMetrics, m)
	return m
}

func gauge(name, help string, labels ...string) metric {
	return newMetric(prometheus.GaugeValue, name, help, labels)
}

func counter(name, help string, labels ...string) metric {
	return newMetric(prometheus.CounterValue, name, help, labels)
}

func histogram(name, help string, labels ...string) metric {
	return newMetric(prometheus.UntypedValue, name, help, labels)
}

// The metrics. Labels have values of small sets only: none is a client's text.
var (
	mBuild = gauge("build_info", "The program: always 1.", "version", "go")
	mReady = gauge("ready", "Whether requests are taken: 1 or 0.")

	mLevelUp       = gauge("level_up", "Whether a level answers: 1, or 0 while it is away.", "level")
	mLevelObjects  = gauge("level_objects", "Objects of a level. Not there if unknown.", "level")
	mLevelBytes    = gauge("level_bytes", "Bytes of objects of a level, with what the level adds. Not there if unknown.", "level")
	mLevelCapacity = gauge("level_capacity_bytes", "Most bytes of a level. Not there if it has no limit of its own.", "level")
	mLevelHeld     = gauge("level_held_bytes", "Bytes of a level that can't be evicted now.", "level")
	mLevelBacklog  = gauge("level_backlog_objects", "Objects that wait to be written to a level.", "level")
	mLevelEvicted  = counter("level_evicted_objects_total", "Objects that went for room.", "level")
	mLevelCorrupt  = counter("level_corrupt_objects_total", "Objects that went because they were damaged.", "level")
	mTierObjects   = counter("tier_objects_total", "What happened to objects: hit, miss, promoted, written, deleted, and their failures with the cause.", "level", "kind", "cause")
	mTierBytes     = counter("tier_bytes_total", "Bytes of the objects of ringcache_tier_objects_total, as far as they are known.", "level", "kind", "cause")
	mFetches       = gauge("fetches", "Objects on the way into memory.")
	mQueued        = gauge("queued_jobs", "Jobs that wait for a worker of the store.")
	mInFlight      = gauge("in_flight_bytes", "Bytes that workers move between levels.")
	mBacklog       = gauge("backlog_objects", "Objects that wait to be written to lower levels.")
	mBacklogBytes  = gauge("backlog_bytes", "Bytes of ringcache_backlog_objects.")

	mConnections = gauge("connections", "Connections of clients.")
	mSessions    = gauge("sessions", "Sessions of clients.")
	mProcesses   = gauge("client_processes", "Processes of clients.")
	mLeases      = gauge("leases", "Open leases.")
	mWaiting     = gauge("leases_waiting", "Leases from before the start whose client has not come back.")
	mHeld        = gauge("leased_bytes", "Bytes that leases have pinned or reserved, each lease for itself.")
	mMessages    = gauge("message_bytes", "Bytes that large requests, large replies and lookups of stat take: at most 48 MiB, and 2 GiB more for LMCache's messages.")
	mAccepted    = counter("connections_accepted_total", "Connections that were accepted.")
	mRecovered   = counter("leases_recovered_total", "Leases that were taken over at the start.")
	mEnded       = counter("leases_expired_total", "Leases that ended without their client's word: by time, or with its process.", "cause")
	mItems       = counter("items_total", "Answers about single objects.", "op", "status")
	mRefused     = counter("requests_refused_total", "Requests that were refused as a whole.", "kind")
	mRequests    = histogram("request_duration_seconds", "Time from the arrival of a request to its answer.", "op")
)

// Describe implements prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, m := range slices.Concat(allMetrics, lmcacheMetrics) {
		to <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	send := func(m metric, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(m.desc, m.kind, v, labels...)
	}
	info, _ := debug.ReadBuildInfo()
	goVersion := "unknown"
	if info != nil {
		goVersion = info.GoVersion
	}
	send(mBuild, 1, valid(c.r.o.Version), goVersion)
	ready := 0.0
	if _, err := c.r.ready(); err == nil {
		ready = 1
	}
	send(mReady, ready)
	if p := c.r.phase.Load(); p == phaseOpening || p == phaseClosed {
		return
	}
	collectStore(c.r.levels, send)
	collectServer(c.r.server.Counters(), send, to)
	c.r.collectValues(send)
	if c.r.lmcache != nil {
		collectLMCache(c.r.lmcache.server.Counts(), c.r.registry.Counts().Use, c.r.levels.store, send)
	}
}

func collectStore(l *levels, send func(m metric, v float64, labels ...string)) {
	s := l.store.State()
	known := func(m metric, n int64, labels ...string) {
		if n >= 0 {
			send(m, float64(n), labels...)
		}
	}
	for _, x := range s.Levels {
		up := 1.0
		if x.Away {
			up = 0
		}
		send(mLevelUp, up, x.Name)
		known(mLevelObjects, x.Usage.Objects, x.Name)
		known(mLevelBytes, x.Usage.Bytes, x.Name)
		if x.Usage.Capacity > 0 {
			send(mLevelCapacity, float64(x.Usage.Capacity), x.Name)
		}
		known(mLevelHeld, x.Usage.Held, x.Name)
		known(mLevelEvicted, x.Usage.Evicted, x.Name)
		known(mLevelCorrupt, x.Usage.Corrupt, x.Name)
		send(mLevelBacklog, float64(x.Backlog), x.Name)
	}
	send(mFetches, float64(s.Fetches))
	send(mQueued, float64(s.Queued))
	send(mInFlight, float64(s.InFlight))
	send(mBacklog, float64(s.Backlog))
	send(mBacklogBytes, float64(s.BacklogBytes))
	for _, x := range l.store.Counters() {
		labels := []string{x.Level, label(x.Kind), label(x.Cause)}
		send(mTierObjects, float64(x.Count), labels...)
		send(mTierBytes, float64(x.Bytes), labels...)
	}
}

func collectServer(s Counters, send func(m metric, v float64, labels ...string), to chan<- prometheus.Metric) {
	send(mConnections, float64(s.Connections))
	send(mSessions, float64(s.Sessions))
	send(mProcesses, float64(s.Processes))
	send(mLeases, float64(s.Leases))
	send(mWaiting, float64(s.Waiting))
	send(mHeld, float64(s.Held))
	send(mMessages, float64(s.Messages))
	send(mAccepted, float64(s.Accepted))
	send(mRecovered, float64(s.Recovered))
	send(mEnded, float64(s.EndedByTime), "time")
	send(mEnded, float64(s.EndedByExit), "exit")
	for _, x := range s.Items {
		send(mItems, float64(x.Count), label(string(x.Op)), label(string(x.Status)))
	}
	for _, x := range s.Refused {
		send(mRefused, float64(x.Count), label(string(x.Kind)))
	}
	for _, x := range s.Requests {
		buckets, sum := map[float64]uint64{}, uint64(0)
		for i, bound := range LatencyBounds {
			sum += x.Within[i]
			buckets[bound.Seconds()] = sum
		}
		to <- prometheus.MustNewConstHistogram(mRequests.desc, sum+x.Within[len(LatencyBounds)], x.Total.Seconds(),
			buckets, label(string(x.Op)))
	}
}

// label is a word of package tier or of the protocol as a value of a label.
func label(word string) string { return strings.ReplaceAll(valid(word), " ", "_") }

// valid makes a text one that a label may have.
func valid(s string) string { return strings.ToValidUTF8(s, "?") }
