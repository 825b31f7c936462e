package check

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/strvals"
	corev1 "k8s.io/api/core/v1"
	sigs "sigs.k8s.io/yaml"
)

// TestPage: the commands of docs/deploy.md name files that are there and values that the chart has, and the engine that the
// page shows uses what the chart makes.
func TestPage(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "..", "docs", "deploy.md"))
	require.NoError(t, err)
	page := string(b)
	for _, m := range regexp.MustCompile(`deploy/[\w./-]+\w`).FindAllString(page, -1) {
		_, err := os.Stat(filepath.Join("..", "..", m))
		require.NoError(t, err)
	}

	v, helm, composed := values{}, 0, 0
	for line := range strings.Lines(strings.ReplaceAll(page, "\\\n", " ")) {
		words := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "    helm "):
			helm++
			require.Equal(t, "ringcache", words[2])
			require.Equal(t, "deploy/helm/ringcache", words[3])
			for i, w := range words {
				if w == "--set" {
					require.NoError(t, strvals.ParseInto(words[i+1], v))
				}
			}
			render(t, v)
		case strings.HasPrefix(line, "    MODEL="):
			composed++
			var files []string
			for i, w := range words {
				if w == "-f" {
					files = append(files, strings.TrimPrefix(words[i+1], "deploy/"))
				}
			}
			_, err := compose(t, words[:1], files...)
			require.NoError(t, err)
		}
	}
	require.Equal(t, 3, helm)
	require.Equal(t, 2, composed)
	require.Equal(t, "64GiB", v["size"])
	config := configOf(t, render(t, v).daemon().Args, secretFiles(t))
	require.Equal(t, "0.0.0.0:9401", config.HTTP)

	block := regexp.MustCompile(`(?m)^    containers:\n(?:    .*\n)+`).FindString(page)
	var pod corev1.PodSpec
	require.NoError(t, sigs.UnmarshalStrict([]byte(block), &pod))
	require.Len(t, pod.Containers, 1)
	r := render(t, v)
	usesTheDaemon(t, r, pod.Volumes, pod.Containers[0])

	rows := regexp.MustCompile("(?m)^\\| `([\\w.-]+)`(?:, `([\\w.-]+)`)? \\| (?:always|with)").FindAllStringSubmatch(page, -1)
	var keys []string
	for _, m := range rows {
		for _, k := range m[1:] {
			if k != "" {
				keys = append(keys, k)
			}
		}
	}
	all := render(t, values{"lm": values{"enabled": true}, "resp": values{"enabled": true}, "directory": values{"enabled": true}})
	tells(t, all, keys)
}
