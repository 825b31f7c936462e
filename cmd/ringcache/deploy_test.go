package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// deployed returns the path of a file of the folder deploy.
func deployed(parts ...string) string {
	return filepath.Join(append([]string{"..", "..", "deploy"}, parts...)...)
}

// composeFile is what these tests look at in compose.yaml.
type composeFile struct {
	Services map[string]composeService
	Volumes  map[string]struct {
		DriverOpts map[string]string `yaml:"driver_opts"`
	}
}

type composeService struct {
	Build       struct{ Context, Dockerfile, Target string }
	Command     []string
	User, PID   string
	Volumes     []string
	MemLimit    string `yaml:"mem_limit"`
	StopGrace   string `yaml:"stop_grace_period"`
	Healthcheck struct{ Test []string }
}

// manifest is what these tests look at in files for Kubernetes.
type manifest struct {
	Kind     string
	Metadata struct{ Name string }
	Data     map[string]string // of a ConfigMap
	Spec     struct {
		Template struct {
			Spec pod
		}
	}
}

type pod struct {
	ShareProcessNamespace bool           `yaml:"shareProcessNamespace"`
	HostPID               bool           `yaml:"hostPID"`
	SecurityContext       map[string]any `yaml:"securityContext"`
	Grace                 int            `yaml:"terminationGracePeriodSeconds"`
	InitContainers        []container    `yaml:"initContainers"`
	Containers            []container
	Volumes               []struct {
		Name     string
		EmptyDir *struct {
			Medium    string
			SizeLimit string `yaml:"sizeLimit"`
		} `yaml:"emptyDir"`
		HostPath *struct{ Path, Type string } `yaml:"hostPath"`
	}
}

type container struct {
	Name          string
	Command, Args []string
	Env           []struct {
		Name      string
		ValueFrom struct {
			ConfigMapKeyRef struct{ Name, Key string } `yaml:"configMapKeyRef"`
		} `yaml:"valueFrom"`
	}
	Resources       struct{ Limits map[string]string }
	SecurityContext map[string]any `yaml:"securityContext"`
	VolumeMounts    []struct {
		Name      string
		MountPath string `yaml:"mountPath"`
	} `yaml:"volumeMounts"`
	StartupProbe  probe `yaml:"startupProbe"`
	LivenessProbe probe `yaml:"livenessProbe"`
}

type probe struct {
	Exec struct{ Command []string }
}

func readYAML(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, into))
}

func readManifests(t *testing.T, name string) (all []manifest) {
	t.Helper()
	text, err := os.ReadFile(deployed("kubernetes", name))
	require.NoError(t, err)
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var m manifest
		err := d.Decode(&m)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		all = append(all, m)
	}
}

// tools returns the folder with the programs that check files, or skips.
func tools(t *testing.T) string {
	t.Helper()
	var log bytes.Buffer
	cmd := exec.Command(filepath.Join("..", "..", "scripts", "deploy-tools.sh"))
	cmd.Stderr = &log
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("no programs that check the files: %v: %s", err, log.String())
	}
	return strings.TrimSpace(string(out))
}

// TestDeploymentSchemas: each file passes its checker, and a copy with a defect does not, so that the checker
// is one.
func TestDeploymentSchemas(t *testing.T) {
	bin := tools(t)
	for name, c := range map[string]struct {
		file, good, bad string
		command         []string
	}{
		"compose": {"compose.yaml", "    healthcheck:", "    healthchecks:",
			[]string{"check-jsonschema", "--builtin-schema", "vendor.compose-spec"}},
		"sidecar": {"kubernetes/sidecar.yaml", "emptyDir: {medium:", "emptyDir: {kind:",
			[]string{"kubernetes-validate", "--strict"}},
		"compose of KV": {"compose.kv.yaml", "    command:", "    commands:",
			[]string{"check-jsonschema", "--builtin-schema", "vendor.compose-spec"}},
		"KV": {"kubernetes/kv.yaml", "emptyDir: {medium:", "emptyDir: {kind:",
			[]string{"kubernetes-validate", "--strict"}},
		"daemonset": {"kubernetes/daemonset.yaml", "hostPID:", "hostPid:", []string{"kubernetes-validate", "--strict"}},
		"image":     {"Containerfile", "WORKDIR /src", "WORKDIR src", []string{"hadolint", "--no-color"}},
	} {
		t.Run(name, func(t *testing.T) {
			path := deployed(filepath.FromSlash(c.file))
			out, err := exec.Command(filepath.Join(bin, c.command[0]), append(c.command[1:], path)...).CombinedOutput()
			require.NoError(t, err, "%s", out)
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Contains(t, string(text), c.good)
			bad := filepath.Join(t.TempDir(), filepath.Base(path))
			require.NoError(t, os.WriteFile(bad, []byte(strings.Replace(string(text), c.good, c.bad, 1)), 0o600))
			out, err = exec.Command(filepath.Join(bin, c.command[0]), append(c.command[1:], bad)...).CombinedOutput()
			require.Error(t, err, "a defect passes: %s", out)
		})
	}
}

// unitFiles are the files for systemd.
var unitFiles = []string{"ringcache.service", "ringcache.socket", "ringcache-directory.service"}

// analyze runs systemd-analyze on copies of the units, in a folder where the program is.
type analyze struct {
	t       *testing.T
	dir     string
	program string
}

func newAnalyze(t *testing.T) *analyze {
	t.Helper()
	program, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd-analyze here")
	}
	a := &analyze{t, t.TempDir(), program}
	require.NoError(t, os.WriteFile(filepath.Join(a.dir, "ringcache"), nil, 0o700)) // it looks whether the program is there
	a.copy("", "")
	return a
}

// copy makes the copies, with one text in place of another in all of them, and reports whether one had it.
func (a *analyze) copy(old, replacement string) (found bool) {
	a.t.Helper()
	for _, name := range unitFiles {
		text, err := os.ReadFile(deployed("systemd", name))
		require.NoError(a.t, err)
		s := strings.ReplaceAll(string(text), "/usr/local/bin/ringcache", filepath.Join(a.dir, "ringcache"))
		found = found || strings.Contains(s, old)
		require.NoError(a.t, os.WriteFile(filepath.Join(a.dir, name), []byte(strings.Replace(s, old, replacement, 1)), 0o600))
	}
	return found
}

// run runs it with arguments behind which the paths of units are.
func (a *analyze) run(args []string, names ...string) (string, error) {
	a.t.Helper()
	for _, u := range names {
		args = append(args, filepath.Join(a.dir, u))
	}
	out, err := exec.Command(a.program, args...).CombinedOutput()
	if err != nil && !strings.Contains(string(out), "ringcache") {
		a.t.Skipf("systemd-analyze does not work here: %v: %s", err, out)
	}
	return string(out), err
}

// TestDeploymentUnits: systemd reads the units without a remark.
func TestDeploymentUnits(t *testing.T) {
	a := newAnalyze(t)
	verify := []string{"verify", "--man=no"}
	out, err := a.run(verify, unitFiles...)
	require.NoError(t, err, out)
	require.Empty(t, out)
	for good, bad := range map[string]string{"Type=notify": "Type=notified", "WatchdogSec=": "WatchDogSeconds=",
		"ListenStream=": "ListenOn=", "DynamicUser=yes": "DynamicUser=maybe"} {
		require.True(t, a.copy(good, bad), good)
		out, _ := a.run(verify, unitFiles...)
		require.NotEmpty(t, out, "%s passes", bad)
	}
}

// TestDeploymentHardening: docs/deploy.md has what `systemd-analyze security` finds, of the release of systemd that it names.
func TestDeploymentHardening(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "deploy.md"))
	require.NoError(t, err)
	a := newAnalyze(t)
	version, err := exec.Command(a.program, "--version").Output()
	require.NoError(t, err)
	level := func(unit string) (float64, string) {
		t.Helper()
		out, err := a.run([]string{"security", "--offline=yes", "--no-pager"}, unit)
		require.NoError(t, err, out)
		m := regexp.MustCompile(`Overall exposure level for \S+: ([0-9.]+) (\w+)`).FindStringSubmatch(out)
		require.NotNil(t, m, out)
		n, err := strconv.ParseFloat(m[1], 64)
		require.NoError(t, err)
		return n, m[2]
	}
	rows := regexp.MustCompile("(?m)^\\| `(ringcache[a-z-]*\\.service)` \\| ([0-9.]+) \\|").FindAllStringSubmatch(string(page), -1)
	require.Len(t, rows, 2)
	for _, m := range rows {
		n, word := level(m[1])
		t.Logf("%s: %.1f %s", m[1], n, word)
		require.Equal(t, "OK", word, m[1])
		want, err := strconv.ParseFloat(m[2], 64)
		require.NoError(t, err)
		if strings.HasPrefix(string(version), "systemd 252 ") {
			require.InDelta(t, want, n, 0.001, "%s in docs/deploy.md", m[1]) // other releases look at more, or at less
		}
	}
	before, _ := level("ringcache.service")
	require.True(t, a.copy("ProtectSystem=strict", "ProtectSystem=no"))
	after, _ := level("ringcache.service")
	require.Greater(t, after, before, "it looks at the units")
}
