package check

import (
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
)

// TestLint: `helm lint` has nothing to say but that there is no icon, and finds what is wrong in a copy.
func TestLint(t *testing.T) {
	for name, c := range installs {
		t.Run(name, func(t *testing.T) {
			l := lint.RunAll(chartDir, fromYAML(t, c.values), namespace)
			for _, m := range l.Messages {
				t.Log(m)
			}
			require.LessOrEqual(t, l.HighestSeverity, support.InfoSev)
		})
	}
	for file, change := range map[string][2]string{
		"templates/daemonset.yaml": {"kind: DaemonSet", "kind: DaemonSet\n  bad: indentation"},
		"Chart.yaml":               {"version: 0.1.0", "version: latest"},
		"values.yaml":              {"size: 16GiB", "size: 16"},
	} {
		l := lint.RunAll(copyChart(t, file, change[0], change[1]), nil, namespace)
		require.Equal(t, support.ErrorSev, l.HighestSeverity, "a defect of %s passes: %v", file, l.Messages)
	}
}
