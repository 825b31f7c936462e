package promtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/stretchr/testify/require"
)

// interval is that of scrapes and of rules, as in deploy/prometheus/prometheus.yml.
const interval = 15 * time.Second

// deployed returns the path of a file of the folder deploy.
func deployed(parts ...string) string {
	return filepath.Join(append([]string{"..", "..", "..", "deploy"}, parts...)...)
}

// prometheus is a Prometheus that scrapes when the test says so.
type prometheus struct {
	*testing.T
	db      *tsdb.DB
	engine  *promql.Engine
	groups  map[string]*rules.Group
	now     time.Time
	targets []*target
}

// target is what is scraped, as a scrape_config describes it.
type target struct {
	job, instance string
	scrape        func() (body []byte, contentType string, err error)
	last          map[string]labels.Labels // series of the last scrape
}

func newPrometheus(t *testing.T, targets ...*target) *prometheus {
	t.Helper()
	o := tsdb.DefaultOptions()
	db, err := tsdb.Open(t.TempDir(), slog.New(slog.DiscardHandler), nil, o, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	p := &prometheus{T: t, db: db, now: time.Now().Truncate(interval), targets: targets}
	p.engine = promql.NewEngine(promql.EngineOpts{
		Logger: slog.New(slog.DiscardHandler), MaxSamples: 10_000_000, Timeout: time.Minute, Parser: parser.NewParser(parser.Options{}),
	})
	m := rules.NewManager(&rules.ManagerOptions{
		Context: t.Context(), ExternalURL: &url.URL{}, Appendable: db, Queryable: db,
		QueryFunc:  rules.EngineQueryFunc(p.engine, db),
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {}, Logger: slog.New(slog.DiscardHandler),
	})
	groups, errs := m.LoadGroups(interval, labels.EmptyLabels(), "", nil, false, deployed("prometheus", "ringcache.rules.yml"))
	require.NoError(t, errors.Join(errs...))
	p.groups = groups
	return p
}

// web is a target that is asked by HTTP. The address may change, as that of a daemon that is started again.
func web(job string, address func() string) *target {
	return &target{job: job, instance: job + "-1", scrape: func() ([]byte, string, error) {
		resp, err := http.Get("http://" + address() + "/metrics")
		if err != nil {
			return nil, "", err
		}
		body, err := io.ReadAll(resp.Body)
		if resp.StatusCode != http.StatusOK {
			err = errors.New(resp.Status)
		}
		return body, resp.Header.Get("Content-Type"), errors.Join(err, resp.Body.Close())
	}}
}

// pass lets so much time pass, with its scrapes and evaluations of rules. Before each scrape it calls do, if that is
// not nil.
func (p *prometheus) pass(d time.Duration, do func()) {
	p.Helper()
	for range d / interval {
		if do != nil {
			do()
		}
		p.now = p.now.Add(interval)
		for _, x := range p.targets {
			p.scrape(x)
		}
		for _, g := range p.groups {
			g.Eval(p.Context(), p.now)
			for _, r := range g.Rules() {
				require.NoError(p, r.LastError(), r.Name())
			}
		}
	}
}

// scrape stores the samples of a target. Series that are gone get the mark of that.
func (p *prometheus) scrape(x *target) {
	p.Helper()
	app := p.db.Appender(p.Context())
	add := func(l labels.Labels, v float64) {
		_, err := app.Append(0, l, p.now.UnixMilli(), v)
		require.NoError(p, err, l.String())
	}
	body, contentType, err := x.scrape()
	up, seen := 1.0, map[string]labels.Labels{}
	if err != nil {
		up, body = 0, nil
	}
	if len(body) > 0 {
		lines, err := textparse.New(body, contentType, nil, textparse.ParserOptions{})
		require.NoError(p, err)
		for {
			entry, err := lines.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(p, err)
			if entry != textparse.EntrySeries {
				continue
			}
			var l labels.Labels
			lines.Labels(&l)
			_, _, v := lines.Series()
			l = labels.NewBuilder(l).Set("job", x.job).Set("instance", x.instance).Labels()
			require.NotContains(p, seen, l.String(), "a series twice")
			seen[l.String()] = l
			add(l, v)
		}
	}
	for name, l := range x.last {
		if _, is := seen[name]; !is {
			add(l, math.Float64frombits(value.StaleNaN))
		}
	}
	x.last = seen
	add(labels.FromStrings("__name__", "up", "job", x.job, "instance", x.instance), up)
	require.NoError(p, app.Commit())
}

// firing are the alerts that fire now.
func (p *prometheus) firing() []string {
	var names []string
	for _, g := range p.groups {
		for _, r := range g.AlertingRules() {
			if r.State() == rules.StateFiring {
				names = append(names, r.Name())
			}
		}
	}
	slices.Sort(names)
	return names
}

// texts are what an alert that fires tells people.
func (p *prometheus) texts(alert string) string {
	p.Helper()
	var out bytes.Buffer
	for _, g := range p.groups {
		for _, r := range g.AlertingRules() {
			if r.Name() != alert {
				continue
			}
			for _, a := range r.ActiveAlerts() {
				if a.State == rules.StateFiring {
					out.WriteString(a.Annotations.Get("summary") + "\n")
				}
			}
		}
	}
	return out.String()
}

// query evaluates an expression over all that was scraped since a time.
func (p *prometheus) query(expr string, since time.Time) promql.Matrix {
	p.Helper()
	q, err := p.engine.NewRangeQuery(p.Context(), p.db, nil, expr, since, p.now, interval)
	require.NoError(p, err, expr)
	defer q.Close()
	r := q.Exec(p.Context())
	require.NoError(p, r.Err, expr)
	m, err := r.Matrix()
	require.NoError(p, err, expr)
	out := make(promql.Matrix, len(m)) // the query's own memory goes with it
	for i, s := range m {
		out[i] = promql.Series{Metric: s.Metric, Floats: slices.Clone(s.Floats)}
	}
	return out
}
