package check

import (
	"os"
	"path/filepath"
	"regexp"
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
		"Chart.yaml":               {"\nversion: ", "\nversion: latest-"},
		"values.yaml":              {"size: 16GiB", "size: 16"},
	} {
		l := lint.RunAll(copyChart(t, file, change[0], change[1]), nil, namespace)
		require.Equal(t, support.ErrorSev, l.HighestSeverity, "a defect of %s passes: %v", file, l.Messages)
	}
}

// TestVersion: the chart has the version of the release that comes next, or is there, and so have the commands of the page.
func TestVersion(t *testing.T) {
	changes, err := os.ReadFile(filepath.Join("..", "..", "CHANGELOG.md"))
	require.NoError(t, err)
	m := regexp.MustCompile(`(?m)^## (\d\S*)`).FindSubmatch(changes)
	require.NotNil(t, m)
	c := loadChart(t)
	require.Equal(t, string(m[1]), c.Metadata.Version)
	require.Equal(t, string(m[1]), c.AppVersion())
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "deploy.md"))
	require.NoError(t, err)
	require.Contains(t, string(page), "/ringcache:"+c.AppVersion()+" ")
}
