package check

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// plain returns the manifests of a file of deploy/kubernetes.
func plain(t *testing.T, name string) []runtime.Object {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "kubernetes", name))
	require.NoError(t, err)
	all, crds := decode(t, string(text))
	require.Empty(t, crds)
	return all
}

// withoutHelm returns what the metadata of a rendered object is without a release.
func withoutHelm(m metav1.ObjectMeta) metav1.ObjectMeta {
	m.Namespace = ""
	for _, l := range []string{"helm.sh/chart", "app.kubernetes.io/version", "app.kubernetes.io/managed-by"} {
		delete(m.Labels, l)
	}
	return m
}

// TestPlainManifestsAreTheChart: daemonset.yaml has what the chart makes of its default values, and its engine uses it.
func TestPlainManifestsAreTheChart(t *testing.T) {
	all, r := plain(t, "daemonset.yaml"), render(t, nil)

	want := r.daemonSet()
	want.ObjectMeta = withoutHelm(want.ObjectMeta)
	c := &want.Spec.Template.Spec.Containers[0]
	require.Equal(t, "ringcache:"+loadChart(t).AppVersion(), c.Image)
	c.Image = "ringcache" // as it was built just now
	require.Equal(t, want, find[*appsv1.DaemonSet](t, all, "ringcache"))

	connection := find[*corev1.ConfigMap](t, r.all, "ringcache-connection")
	connection.ObjectMeta = withoutHelm(connection.ObjectMeta)
	require.Equal(t, connection, find[*corev1.ConfigMap](t, all, "ringcache-connection"))

	pod := find[*appsv1.Deployment](t, all, "vllm").Spec.Template.Spec
	require.Equal(t, want.Spec.Template.Spec.SecurityContext, pod.SecurityContext, "one user for both")
	usesTheDaemon(t, r, pod.Volumes, pod.Containers[0])
	require.Len(t, all, 3)
}

// TestSidecarsAreTheChartsDaemon: the daemon beside an engine is the chart's, but for sizes and what only the pod of a
// daemon alone needs.
func TestSidecarsAreTheChartsDaemon(t *testing.T) {
	for file, kv := range map[string]bool{"sidecar.yaml": false, "kv.yaml": true} {
		t.Run(file, func(t *testing.T) {
			r := render(t, values{"size": "8GiB", "disk": values{"size": "100GiB"}, "lmcache": values{"enabled": kv}, "image": values{"tag": "tag"}})
			all := plain(t, file)
			require.Len(t, all, 1)
			pod := find[*appsv1.Deployment](t, all, "vllm").Spec.Template.Spec
			require.Len(t, pod.InitContainers, 1)
			got, want := pod.InitContainers[0], r.daemon()
			require.Equal(t, corev1.ContainerRestartPolicyAlways, *got.RestartPolicy)
			got.RestartPolicy = nil
			want.ReadinessProbe = nil // the engine's says whether the pod is of use
			want.Image = strings.TrimSuffix(want.Image, ":tag")
			require.Equal(t, want, got)
			if !kv {
				return
			}
			for i, a := range pod.Containers[0].Args {
				if a == "--kv-transfer-config" {
					require.JSONEq(t, told(t, r)["kv-transfer-config.json"], pod.Containers[0].Args[i+1])
					return
				}
			}
			t.Fatal("the engine has no connector")
		})
	}
}

// TestOpenAPI: what is rendered has the required fields, too, of Kubernetes' OpenAPI schemas, by a program that
// scripts/deploy-tools.sh installs.
func TestOpenAPI(t *testing.T) {
	out, err := exec.Command(filepath.Join("..", "..", "scripts", "deploy-tools.sh")).Output()
	if err != nil {
		t.Skipf("no programs that check the files: %v", err)
	}
	tool := filepath.Join(strings.TrimSpace(string(out)), "kubernetes-validate")
	validate := func(t *testing.T, text string) (string, error) {
		file := filepath.Join(t.TempDir(), "rendered.yaml")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		out, err := exec.Command(tool, "--strict", file).CombinedOutput()
		return string(out), err
	}
	for name, c := range installs {
		t.Run(name, func(t *testing.T) {
			r := render(t, c.values)
			text, _, _ := strings.Cut(r.text, "apiVersion: monitoring.coreos.com")
			require.True(t, len(r.crds) > 0 || text == r.text)
			out, err := validate(t, text)
			require.NoError(t, err, out)
		})
	}
	out2, err := validate(t, strings.Replace(render(t, nil).text, "  selector:\n", "  minReadySeconds: 1\n  ignored:\n", 1))
	require.Error(t, err, "a defect passes: %s", out2)
}

// TestPodMonitor: the one manifest without a type of Kubernetes', whose fields are compared here.
func TestPodMonitor(t *testing.T) {
	r := render(t, installs["all protocols"].values)
	require.Len(t, r.crds, 1)
	m := r.crds[0]
	spec, err := json.Marshal(m["spec"])
	require.NoError(t, err)
	require.JSONEq(t, `{"selector": {"matchLabels": {"app.kubernetes.io/name": "ringcache", "app.kubernetes.io/instance": "ringcache", "app.kubernetes.io/component": "daemon"}},
		"podMetricsEndpoints": [{"port": "http", "path": "/metrics", "interval": "30s", "authorization": {"credentials": {"name": "operators", "key": "key"}}}]}`, string(spec))
	byTLS, err := json.Marshal(render(t, installs["certificates of clients"].values).crds[0]["spec"].(map[string]any)["podMetricsEndpoints"])
	require.NoError(t, err)
	require.JSONEq(t, `[{"port": "http", "path": "/metrics", "interval": "30s", "scheme": "https", "tlsConfig": {"serverName": "ringcache"}}]`, string(byTLS))
	require.Equal(t, "prometheus", m["metadata"].(map[string]any)["labels"].(map[string]any)["release"], "the label by which a Prometheus finds it")
}
