package promtest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/internal/kvload"
	"github.com/ringcache/ringcache/internal/redistest"
	"github.com/ringcache/ringcache/lmcache/lm"
)

// board is what these tests look at in the board.
type board struct {
	Title      string
	Templating struct {
		List []struct {
			Name, Type string
			Query      json.RawMessage
		}
	}
	Panels []struct {
		ID                       int
		Type, Title, Description string
		GridPos                  struct{ H, W, X, Y int }
		FieldConfig              struct {
			Defaults struct{ Unit string }
		}
		Targets []struct{ RefID, Expr, LegendFormat string }
	}
}

func readBoard(t *testing.T) board {
	t.Helper()
	text, err := os.ReadFile(deployed("grafana", "ringcache.json"))
	require.NoError(t, err)
	var b board
	require.NoError(t, json.Unmarshal(text, &b))
	require.Greater(t, len(b.Panels), 30)
	return b
}

// variables are those of the board and of Grafana, as all jobs and instances.
var variables = strings.NewReplacer("$job", ".*", "$instance", ".*", "$__rate_interval", "1m")

// TestBoardIsOneThatGrafanaCanShow: what Grafana would not complain about, and show wrongly.
func TestBoardIsOneThatGrafanaCanShow(t *testing.T) {
	b := readBoard(t)
	ids, taken := map[int]bool{}, map[[2]int]string{}
	for _, p := range b.Panels {
		require.False(t, ids[p.ID], "%s: its number is another panel's", p.Title)
		ids[p.ID] = true
		for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				require.Less(t, x, 24, p.Title)
				require.Empty(t, taken[[2]int{x, y}], "%s lies on another panel", p.Title)
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		require.NotEmpty(t, p.Targets, p.Title)
		require.NotEmpty(t, p.FieldConfig.Defaults.Unit, p.Title)
		require.Regexp(t, `\.$`, p.Description, p.Title)
		for _, x := range p.Targets {
			expr, err := parser.NewParser(parser.Options{}).ParseExpr(variables.Replace(x.Expr))
			require.NoError(t, err, "%s: %s", p.Title, x.Expr)
			// What a legend names is a label that the expression leaves.
			for _, l := range regexp.MustCompile(`{{(\w+)}}`).FindAllStringSubmatch(x.LegendFormat, -1) {
				if by := grouping(expr); by != nil {
					require.Contains(t, by, l[1], "%s: the legend of %s", p.Title, x.Expr)
				}
			}
		}
	}
}

// grouping are the labels that an expression leaves; nil is all that its metrics have.
func grouping(e parser.Expr) []string {
	switch x := e.(type) {
	case *parser.AggregateExpr:
		return append([]string{}, x.Grouping...)
	case *parser.BinaryExpr:
		return grouping(x.LHS)
	case *parser.ParenExpr:
		return grouping(x.Expr)
	case *parser.Call:
		for _, a := range x.Args {
			if by := grouping(a); by != nil {
				return by
			}
		}
	}
	return nil
}

// load is what clients of all protocols ask of a daemon between two scrapes.
type load struct {
	*testing.T
	user  *user
	lm    *lm.Client
	resp  net.Conn
	names [][]string // of each step
	n     int
}

func (l *load) step() {
	l.n++
	names, _ := l.user.store(8, 10_000) // in 50 steps as much as the memory has
	l.names = append(l.names, names)
	l.user.look(names)
	if old := l.n - 65; old >= 0 {
		l.user.look(l.names[old]) // which memory does not have any more, and lower levels have
	}
	l.user.look([]string{fmt.Sprint("nobody has ", l.n)})

	key := fmt.Sprintf("vllm@model@1@0@%x@half", l.n)
	require.NoError(l, l.lm.Put(l.Context(), key, lm.Meta{Format: 2}, make([]byte, 1000)))
	_, err := l.lm.Exists(l.Context(), key)
	require.NoError(l, err)
	_, _, err = l.lm.Get(l.Context(), key, nil)
	require.NoError(l, err)

	l.command("SET", fmt.Sprint("key", l.n), "value")
	l.command("GET", fmt.Sprint("key", l.n))
	l.command("GET", "nobody has it")
}

// command sends a command of Redis, and reads what comes at once as the answer to it.
func (l *load) command(words ...string) {
	text := fmt.Sprintf("*%d\r\n", len(words))
	for _, w := range words {
		text += fmt.Sprintf("$%d\r\n%s\r\n", len(w), w)
	}
	_, err := io.WriteString(l.resp, text)
	require.NoError(l, err)
	answer := make([]byte, 1000)
	n, err := l.resp.Read(answer)
	require.NoError(l, err)
	require.NotEqual(l, "-", string(answer[:min(1, n)]), "%s", answer[:n])
}

// TestBoard: each query of each panel has data of a recorded run, in which a daemon with all levels serves clients
// of all protocols, and no alert fires.
func TestBoard(t *testing.T) {
	redis := redistest.Start(t)
	dir := t.TempDir()
	sockets, err := os.MkdirTemp("", "rc")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(sockets)) })
	kv, lmSocket, respSocket := filepath.Join(sockets, "kv"), filepath.Join(sockets, "lm"), filepath.Join(sockets, "resp")
	d := newDaemon(t, "--disk", dir, "--disk-size", "64MiB", "--redis", "unix://"+redis.Socket(),
		"--lmcache", "grpc+unix://"+kv, "--lmcache-chunk-size", "16", "--lm", "unix://"+lmSocket, "--resp", "unix://"+respSocket)
	l := &load{T: t, user: d.dial("board"), lm: lm.NewClient(lm.ClientOptions{Address: "unix://" + lmSocket})}
	defer func() { require.NoError(t, l.lm.Close()) }()
	l.resp, err = net.Dial("unix", respSocket)
	require.NoError(t, err)
	defer func() { require.NoError(t, l.resp.Close()) }()

	ctx, stop := context.WithCancel(t.Context())
	turns, asked := make(chan struct{}), make(chan struct{}) // an engine with LMCache makes a request in each
	ended := make(chan error, 1)
	go func() {
		ended <- kvload.Load(ctx, kvload.LoadOptions{
			Engine: kvload.Options{
				Target: "unix:" + kv, Dir: d.dir, Model: "model", Block: 16, Layers: []int{2}, Hidden: 8, World: 1, Timeout: patience,
			},
			Sessions: 1, Prompts: 20, Chunks: 4, Salts: 2, MayLapse: true, Count: func(map[string]int) {
				select {
				case asked <- struct{}{}:
					<-turns
				case <-ctx.Done():
				}
			},
			Rest: func() bool { return false }, At: func() {},
		})
	}()
	p := newPrometheus(t, web("ringcache", d.address), engineTarget(t, func() bool { return false }))
	begin := p.now
	p.pass(20*time.Minute, func() {
		l.step()
		select {
		case <-asked:
			turns <- struct{}{}
		case err := <-ended:
			t.Fatal(err)
		}
		require.Empty(t, p.firing())
	})
	stop()
	require.NoError(t, <-ended)
	require.Positive(t, d.value(`ringcache_tier_objects_total{cause="",kind="promoted",level="disk"}`), "the run has what panels show")
	require.Empty(t, p.firing())

	b := readBoard(t)
	series := 0
	for _, panel := range b.Panels {
		for _, x := range panel.Targets {
			m := p.query(variables.Replace(x.Expr), begin)
			last, names := math.NaN(), []string{}
			for _, s := range m {
				names = append(names, legend(x.LegendFormat, s.Metric))
				for _, f := range s.Floats {
					if !math.IsNaN(f.F) {
						last = f.F
					}
				}
			}
			series += len(m)
			require.NotEmpty(t, m, "%s: no series: %s", panel.Title, x.Expr)
			require.False(t, math.IsNaN(last), "%s: no number: %s", panel.Title, x.Expr)
			t.Logf("%-42s %3d series, last %12.6g %-8s %s", panel.Title, len(m), last, panel.FieldConfig.Defaults.Unit, strings.Join(names, ", "))
		}
	}
	t.Logf("%d panels, %d series", len(b.Panels), series)

	for _, name := range ofLMCachesBoard {
		require.NotEmpty(t, p.query("lmcache_mp_"+name, begin), name)
	}
}

// ofLMCachesBoard are the metrics of the panels of LMCache's own board that docs/metrics.md says are as there.
var ofLMCachesBoard = []string{
	"l1_allocation_failure_chunks_total", "l1_read_failure_chunks_total", "l2_prefetch_failure_chunks_total", // Failure Rates
	"l1_memory_usage_bytes", "l1_usage_ratio", // L1 Memory Usage
	"l1_read_chunks_total", "l1_write_chunks_total", "l1_evicted_chunks_total", // L1 Cache Operations, L1 IOPS
	"lookup_requested_tokens_total", "lookup_hit_tokens_total", "num_chunks_loaded_total", // Lookup & Engine Activity, Cache Hit Rate
	"l2_usage_bytes", // L2 Usage (current)
	// In part: L2 Store Pipeline, L2 Prefetch Pipeline, Inflight Operations.
	"l2_store_completed_objects_chunks_total", "l2_prefetch_load_completed_chunks_total", "active_prefetch_jobs",
}

// legend is the name of a series in a panel.
func legend(format string, l labels.Labels) string {
	return regexp.MustCompile(`{{(\w+)}}`).ReplaceAllStringFunc(format, func(s string) string { return l.Get(strings.Trim(s, "{}")) })
}

// engineTarget is an engine: what the connectors' counters are in vLLM's own /metrics, as test_counts_reach_prometheus
// of python/tests/test_offloading.py has recorded it. The counts grow with each scrape, those of failures while fails
// says so.
func engineTarget(t *testing.T, fails func() bool) *target {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "engine.txt"))
	require.NoError(t, err)
	n, failures := 0, 0
	return &target{job: "vllm", instance: "engine-1", scrape: func() ([]byte, string, error) {
		n++
		if fails() {
			failures++
		}
		body := regexp.MustCompile(`(?m)^(vllm:\w+{.*}) \S+$`).ReplaceAll(text, fmt.Appendf(nil, "$1 %d", n))
		body = regexp.MustCompile(`(?m)^(vllm:\w+_failures_total{.*}) \S+$`).ReplaceAll(body, fmt.Appendf(nil, "$1 %d", failures))
		return body, "text/plain; version=0.0.4", nil
	}}
}
