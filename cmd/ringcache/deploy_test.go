package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
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
	Kind string
	Spec struct {
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
	Name            string
	Command, Args   []string
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

// TestDeploymentUnits: systemd reads the units without a remark.
func TestDeploymentUnits(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd-analyze here")
	}
	dir := t.TempDir()
	service, err := os.ReadFile(deployed("systemd", "ringcache.service"))
	require.NoError(t, err)
	socket, err := os.ReadFile(deployed("systemd", "ringcache.socket"))
	require.NoError(t, err)
	verify := func(service, socket string) (string, error) {
		binary := filepath.Join(dir, "ringcache") // verify looks whether it is there
		require.NoError(t, os.WriteFile(binary, nil, 0o700))
		service = strings.ReplaceAll(service, "/usr/local/bin/ringcache", binary)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "ringcache.service"), []byte(service), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "ringcache.socket"), []byte(socket), 0o600))
		out, err := exec.Command(analyze, "verify", "--man=no", filepath.Join(dir, "ringcache.service"),
			filepath.Join(dir, "ringcache.socket")).CombinedOutput()
		return string(out), err
	}
	out, err := verify(string(service), string(socket))
	if err != nil && !strings.Contains(out, dir) && !strings.Contains(out, "ringcache") {
		t.Skipf("systemd-analyze does not work here: %v: %s", err, out)
	}
	require.NoError(t, err, out)
	require.Empty(t, out)
	for good, bad := range map[string]string{"Type=notify": "Type=notified", "WatchdogSec=": "WatchDogSeconds=",
		"ListenStream=": "ListenOn="} {
		require.Contains(t, string(service)+string(socket), good)
		out, _ := verify(strings.Replace(string(service), good, bad, 1), strings.Replace(string(socket), good, bad, 1))
		require.NotEmpty(t, out, "%s passes", bad)
	}
}
