package daemon

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// TestBoardAndAlertsNameWhatThereIs: metrics and labels of the files in the folder deploy are those that the daemon
// has, or that vLLM has of the connectors, as package promtest has recorded them. That module's tests evaluate them.
func TestBoardAndAlertsNameWhatThereIs(t *testing.T) {
	labels := map[string][]string{}
	shared := []string{"job", "instance"}
	parts := regexp.MustCompile(`fqName: "([^"]+)", .*variableLabels: {([^}]*)}`)
	for _, m := range slices.Concat(allMetrics, lmcacheMetrics) {
		found := parts.FindStringSubmatch(m.desc.String())
		require.NotNil(t, found, m.desc.String())
		own := append(strings.FieldsFunc(found[2], func(r rune) bool { return r == ',' || r == ' ' }), shared...)
		if m.desc == mRequests.desc {
			for _, end := range []string{"_bucket", "_count", "_sum"} {
				labels[found[1]+end] = append(own, "le")
			}
			continue
		}
		labels[found[1]] = own
	}
	engine, err := os.ReadFile(filepath.Join("internal", "promtest", "testdata", "engine.txt"))
	require.NoError(t, err)
	for _, found := range regexp.MustCompile(`(?m)^(vllm:\w+)`).FindAllStringSubmatch(string(engine), -1) {
		labels[found[1]] = shared
	}
	var all []string
	for _, l := range labels {
		all = append(all, l...)
	}

	metric := regexp.MustCompile(`\b((?:ringcache|lmcache_mp|vllm:ringcache|vllm:kv_offload)_\w+)({[^}]*})?`)
	label := regexp.MustCompile(`(\w+) ?(?:=~|!~|!=|=)`)
	by := regexp.MustCompile(`\b(?:by|on|ignoring|without) \(([^)]*)\)`)
	for file, least := range map[string]int{"grafana/ringcache.json": 60, "prometheus/ringcache.rules.yml": 10} {
		b, err := os.ReadFile(filepath.Join("..", "deploy", file))
		require.NoError(t, err)
		text := strings.ReplaceAll(string(b), `\"`, `"`)
		seen := 0
		for _, found := range metric.FindAllStringSubmatch(text, -1) {
			require.Contains(t, labels, found[1], "%s: there is no such metric", file)
			for _, l := range label.FindAllStringSubmatch(found[2], -1) {
				require.Contains(t, labels[found[1]], l[1], "%s: %s has no such label", file, found[0])
				seen++
			}
		}
		for _, found := range by.FindAllStringSubmatch(text, -1) {
			for l := range strings.SplitSeq(found[1], ", ") {
				require.Contains(t, all, l, "%s: no metric has the label of %s", file, found[0])
			}
		}
		require.Greater(t, seen, least, "%s was read", file)
	}
}

// TestAlertsAreDocumented: the table of docs/metrics.md is the file's.
func TestAlertsAreDocumented(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "deploy", "prometheus", "ringcache.rules.yml"))
	require.NoError(t, err)
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert, For string
				Labels     struct{ Severity string }
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(b, &rules))
	page, err := os.ReadFile(filepath.Join("..", "docs", "metrics.md"))
	require.NoError(t, err)
	rows := regexp.MustCompile("(?m)^\\| `(Ringcache\\w+)` \\| (\\w+) \\| [^|]+ \\| (\\w*) ?\\|$").FindAllStringSubmatch(string(page), -1)
	require.Len(t, rules.Groups, 1)
	require.Len(t, rows, len(rules.Groups[0].Rules))
	for i, r := range rules.Groups[0].Rules {
		require.Equal(t, []string{r.Alert, r.Labels.Severity, r.For}, rows[i][1:])
	}
}
