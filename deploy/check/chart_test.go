package check

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	sigs "sigs.k8s.io/yaml"
)

// chartDir is the folder of the chart.
var chartDir = filepath.Join("..", "helm", "ringcache")

// values are what the chart is installed with.
type values = map[string]any

// namespace is where the chart is installed, as the release "ringcache".
const namespace = "cache"

// rendered is what Helm would send to an API server.
type rendered struct {
	t     *testing.T
	text  string // of all manifests
	notes string
	all   []runtime.Object // without PodMonitors, whose type is none of Kubernetes'
	crds  []map[string]any
}

func loadChart(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.LoadDir(chartDir)
	require.NoError(t, err)
	return c
}

// install renders the chart as `helm install ringcache` does.
func install(t *testing.T, v values) (map[string]string, error) {
	t.Helper()
	c := loadChart(t)
	full, err := util.ToRenderValues(c, fromYAML(t, v), common.ReleaseOptions{Name: "ringcache", Namespace: namespace, IsInstall: true, Revision: 1}, nil)
	if err != nil {
		return nil, err
	}
	return engine.Engine{Strict: true}.RenderWithContext(t.Context(), c, full)
}

// fromYAML returns values as Helm reads them from a file. What is made of them changes nothing of v.
func fromYAML(t *testing.T, v values) (out values) {
	t.Helper()
	text, err := sigs.Marshal(v)
	require.NoError(t, err)
	require.NoError(t, sigs.Unmarshal(text, &out))
	return out
}

// render installs, and decodes each manifest as strictly as an API server that is asked to: no unknown field, and none
// twice.
func render(t *testing.T, v values) *rendered {
	t.Helper()
	files, err := install(t, v)
	require.NoError(t, err)
	r := &rendered{t: t}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, "NOTES.txt") {
			r.notes = files[name]
			continue
		}
		r.text += "---\n" + files[name] + "\n"
	}
	r.all, r.crds = decode(t, r.text)
	return r
}

// decode decodes manifests. What has a type that is none of Kubernetes' is returned as a map.
func decode(t *testing.T, text string) (all []runtime.Object, crds []map[string]any) {
	t.Helper()
	codecs := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict)
	for d := yaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text))); ; {
		doc, err := d.Read()
		if errors.Is(err, io.EOF) {
			return all, crds
		}
		require.NoError(t, err)
		j, err := yaml.ToJSON(doc)
		require.NoError(t, err)
		if bytes.Equal(j, []byte("null")) {
			continue // nothing but comments
		}
		var head struct{ APIVersion string }
		require.NoError(t, json.Unmarshal(j, &head))
		if strings.HasPrefix(head.APIVersion, "monitoring.coreos.com/") {
			var m map[string]any
			require.NoError(t, json.Unmarshal(j, &m))
			crds = append(crds, m)
			continue
		}
		o, _, err := codecs.UniversalDeserializer().Decode(doc, nil, nil)
		require.NoError(t, err, "%s", doc)
		all = append(all, o)
	}
}

// find returns the object of a type and a name, which has to be there.
func find[T interface {
	runtime.Object
	GetName() string
}](t *testing.T, all []runtime.Object, name string) (found T) {
	t.Helper()
	n := 0
	for _, o := range all {
		if x, ok := o.(T); ok && x.GetName() == name {
			found, n = x, n+1
		}
	}
	require.Equal(t, 1, n, "one %T %s", found, name)
	return found
}

func (r *rendered) daemonSet() *appsv1.DaemonSet {
	return find[*appsv1.DaemonSet](r.t, r.all, "ringcache")
}

// daemon returns the container of the daemon.
func (r *rendered) daemon() corev1.Container {
	r.t.Helper()
	list := r.daemonSet().Spec.Template.Spec.Containers
	require.Len(r.t, list, 1)
	return list[0]
}

// kinds lists what was rendered.
func (r *rendered) kinds() (list []string) {
	for _, o := range r.all {
		list = append(list, fmt.Sprintf("%s %s", o.GetObjectKind().GroupVersionKind().Kind, o.(interface{ GetName() string }).GetName()))
	}
	for _, m := range r.crds {
		list = append(list, fmt.Sprintf("%s %s", m["kind"], m["metadata"].(map[string]any)["name"]))
	}
	slices.Sort(list)
	return list
}

// copyChart copies the chart into a folder of the test, with a replacement in one file.
func copyChart(t *testing.T, file, old, replacement string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "ringcache")
	require.NoError(t, os.CopyFS(dir, os.DirFS(chartDir)))
	path := filepath.Join(dir, filepath.FromSlash(file))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(text), old)
	require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(text), old, replacement, 1)), 0o600))
	return dir
}
