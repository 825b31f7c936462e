package check

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/ringcache/ringcache/daemon"
)

// installs are values with which the chart is installed, and what comes of them beside a DaemonSet and the ConfigMap for
// engines.
var installs = map[string]struct {
	values  values
	further []string             // manifests
	told    []string             // keys of the ConfigMap
	config  func(*daemon.Config) // what differs from the defaults
}{
	"defaults": {
		told: []string{"ec-transfer-config.json", "kv-transfer-config.json"},
	},
	"encoder outputs only, no disk": {
		values: values{"size": "4GiB", "disk": values{"size": ""}, "lmcache": values{"enabled": false}, "drainSeconds": 0},
		told:   []string{"ec-transfer-config.json"},
		config: func(c *daemon.Config) { c.Size, c.Disk, c.DiskSize, c.LMCache, c.Drain = 4<<30, "", 0, nil, 0 },
	},
	"all protocols": {
		values: values{
			"lm":   values{"enabled": true},
			"resp": values{"enabled": true, "passwordSecret": values{"name": "clients"}},
			"http": values{
				"expose":     true,
				"keySecret":  values{"name": "operators"},
				"podMonitor": values{"enabled": true, "labels": values{"release": "prometheus"}},
			},
			"redis": values{
				"url":            "rediss://cache.example:6379/0",
				"user":           "ringcache",
				"passwordSecret": values{"name": "below", "key": "word"},
			},
		},
		further: []string{"PodMonitor ringcache", "Service ringcache"},
		told:    []string{"ec-transfer-config.json", "kv-transfer-config.json", "lm-remote-url", "resp-remote-url"},
		config: func(c *daemon.Config) {
			c.LM, c.RESP, c.ValuesAny = []string{"0.0.0.0:65432"}, []string{"0.0.0.0:6379"}, true
			c.HTTP, c.HTTPAny = "0.0.0.0:9401", true
			c.Redis, c.RedisUser = "rediss://cache.example:6379/0", "ringcache"
			c.RESPPasswordFile, c.RedisPasswordFile, c.HTTPKeyFile = "/etc/ringcache/resp/password", "/etc/ringcache/redis/password", []string{
				"/etc/ringcache/http/key",
			}
		},
	},
	"certificates of clients": {
		values: values{"http": values{"expose": true, "tlsSecret": values{"name": "served", "clientCA": true},
			"podMonitor": values{"enabled": true, "tlsConfig": values{"serverName": "ringcache"}}}},
		further: []string{"PodMonitor ringcache"},
		told:    []string{"ec-transfer-config.json", "kv-transfer-config.json"},
		config: func(c *daemon.Config) {
			c.HTTP, c.HTTPAny = "0.0.0.0:9401", true
			c.HTTPCert, c.HTTPCertKey, c.HTTPClientCA = "/etc/ringcache/tls/tls.crt", "/etc/ringcache/tls/tls.key", "/etc/ringcache/tls/ca.crt"
		},
	},
	"settings": {
		values: values{
			"settings": values{
				"quota":          "2GiB",
				"quotas":         []any{"team-a=8GiB", "team-b=0"},
				"max-sessions":   2048,
				"prefault":       true,
				"log-format":     "json",
				"lmcache-engine": "vllm 0.33, fp8",
			},
		},
		told: []string{"ec-transfer-config.json", "kv-transfer-config.json"},
		config: func(c *daemon.Config) {
			c.Quota, c.Quotas, c.MaxSessions, c.Prefault, c.LogFormat = 2<<30, []string{
				"team-a=8GiB",
				"team-b=0",
			}, 2048, true, "json"
			c.LMCacheEngine = "vllm 0.33, fp8"
		},
	},
	"pods of one's own": {
		values: values{
			"fullnameOverride": "ringcache",
			"image":            values{"repository": "registry.example/ringcache", "tag": "1.2.3"},
			"imagePullSecrets": []any{
				values{"name": "registry"},
			},
			"user":              values{"uid": 1000, "gid": 1000},
			"priorityClassName": "system-node-critical",
			"nodeSelector": values{
				"nvidia.com/gpu.present": nil,
				"pool":                   "inference",
			},
			"affinity": values{"nodeAffinity": values{}},
			"podAnnotations": values{
				"a/b": "c",
			},
			"podLabels": values{"team": "inference"},
			"paths":     values{"run": "/run/vllm", "disk": "/mnt/nvme0/ringcache"},
			"resources": values{
				"limits": values{"memory": "30Gi", "cpu": "4"},
			},
			"updateStrategy": values{"type": "OnDelete", "rollingUpdate": nil},
		},
		told: []string{"ec-transfer-config.json", "kv-transfer-config.json"},
	},
	"directory": {
		values: values{
			"directory": values{"enabled": true, "controller": values{"enabled": true}, "args": []any{"--chunk-size=128"},
				"events": []any{"tcp://engine-0.engine:5557,instance=engine-0,model=org/model"}},
		},
		further: []string{"Deployment ringcache-directory", "Service ringcache-directory"},
		told:    []string{"directory-url", "ec-transfer-config.json", "kv-transfer-config.json"},
	},
}

// configOf reads flags as `ringcache serve` does. Files of secrets are looked for in a folder.
func configOf(t *testing.T, args []string, secrets string) daemon.Config {
	t.Helper()
	require.Equal(t, "serve", args[0])
	flags := map[string]string{}
	for _, a := range args[1:] {
		name, value, given := strings.Cut(strings.TrimPrefix(a, "--"), "=")
		if !given {
			value = "true"
		}
		require.NotContains(t, flags, name, "a flag is given once")
		if file, ok := strings.CutPrefix(value, "/etc/ringcache/"); ok {
			value = filepath.Join(secrets, file)
		}
		flags[name] = value
	}
	c, err := daemon.Sources{Flags: flags}.Load()
	require.NoError(t, err, "%q", args)
	return c
}

// secretFiles has a file for each password, key and certificate that a pod may mount.
func secretFiles(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, file := range []string{"resp/password", "redis/password", "http/key"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(file)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte("secret\n"), 0o600))
	}
	cert, key := certificate(t)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "tls"), 0o700))
	for name, text := range map[string][]byte{"tls.crt": cert, "ca.crt": cert, "tls.key": key} { // as a Secret of kubernetes.io/tls
		require.NoError(t, os.WriteFile(filepath.Join(dir, "tls", name), text, 0o600))
	}
	return dir
}

// certificate returns one that has signed itself, and its key.
func certificate(t *testing.T) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	require.NoError(t, err)
	raw, err := x509.MarshalPKCS8PrivateKey(k)
	require.NoError(t, err)
	return pem.EncodeToMemory(
			&pem.Block{Type: "CERTIFICATE", Bytes: der},
		), pem.EncodeToMemory(
			&pem.Block{Type: "PRIVATE KEY", Bytes: raw},
		)
}

// TestInstalls: each manifest is one of Kubernetes', the flags are those that a daemon takes, and what it is told to use
// is mounted and has room.
func TestInstalls(t *testing.T) {
	for name, c := range installs {
		t.Run(name, func(t *testing.T) {
			r := render(t, c.values)
			want := append([]string{"ConfigMap ringcache-connection", "DaemonSet ringcache"}, c.further...)
			require.ElementsMatch(t, want, r.kinds())

			config := defaults(t)
			if c.config != nil {
				c.config(&config)
			}
			d, secrets := r.daemon(), secretFiles(t)
			got := configOf(t, d.Args, secrets)
			for _, file := range []*string{&config.RESPPasswordFile, &config.RedisPasswordFile, &config.HTTPCert, &config.HTTPCertKey, &config.HTTPClientCA} {
				*file = strings.Replace(*file, "/etc/ringcache", secrets, 1)
			}
			for i := range config.HTTPKeyFile {
				config.HTTPKeyFile[i] = strings.Replace(config.HTTPKeyFile[i], "/etc/ringcache", secrets, 1)
			}
			require.Equal(t, exported(config), exported(got))
			fits(t, r, got)
			tells(t, r, c.told)
		})
	}
}

// exported returns the settings of a configuration. What else it has are passwords.
func exported(c daemon.Config) map[string]any {
	m := map[string]any{}
	for f, v := range reflect.ValueOf(c).Fields() {
		if f.IsExported() {
			m[f.Name] = v.Interface()
		}
	}
	return m
}

// defaults is the configuration that the chart has by itself.
func defaults(t *testing.T) daemon.Config {
	t.Helper()
	c, err := daemon.Sources{Flags: map[string]string{
		"size":      "16GiB",
		"disk":      "/var/cache/ringcache",
		"disk-size": "200GiB",
		"lmcache":   "grpc+unix:///run/ringcache/kv.sock",
	}}.Load()
	require.NoError(t, err)
	return c
}

// fits checks that a pod has what its daemon is told to use.
func fits(t *testing.T, r *rendered, c daemon.Config) {
	t.Helper()
	pod, d := r.daemonSet().Spec.Template.Spec, r.daemon()
	require.Equal(t, []string{"/ringcache", "serve", "status"}, d.StartupProbe.Exec.Command)
	require.Equal(t, d.StartupProbe.Exec, d.ReadinessProbe.Exec)
	require.Equal(t, d.StartupProbe.Exec, d.LivenessProbe.Exec)
	require.GreaterOrEqual(t, d.Resources.Limits.Memory().Value(), c.Size+2<<30, "shared memory counts against the limit")
	require.Greater(t, d.Resources.Requests.Memory().Value(), c.Size)
	require.Greater(t, time.Duration(*pod.TerminationGracePeriodSeconds)*time.Second, c.Drain)
	require.True(t, pod.HostPID)
	require.False(t, *pod.AutomountServiceAccountToken)

	volumes := map[string]corev1.VolumeSource{}
	for _, v := range pod.Volumes {
		volumes[v.Name] = v.VolumeSource
	}
	at := map[string]corev1.VolumeSource{}
	for _, m := range d.VolumeMounts {
		require.Contains(t, volumes, m.Name)
		at[m.MountPath] = volumes[m.Name]
	}
	require.Len(t, at, len(volumes), "each volume is mounted")
	require.Equal(t, "/dev/shm", at["/dev/shm"].HostPath.Path)
	require.NotNil(t, at[filepath.Dir(c.Socket)].HostPath)
	require.Equal(t, c.Disk != "", at["/var/cache/ringcache"].HostPath != nil)
	for _, file := range append([]string{c.RESPPasswordFile, c.RedisPasswordFile}, c.HTTPKeyFile...) {
		if file == "" {
			continue
		}
		folder, name := filepath.Split(file)
		secret := at["/etc/ringcache/"+filepath.Base(folder)].Secret
		require.NotNil(t, secret, "%s is mounted", file)
		require.Equal(t, name, secret.Items[0].Path)
	}
	require.Equal(t, c.HTTPCert != "", at["/etc/ringcache/tls"].Secret != nil)
	ports := map[string]int32{}
	for _, p := range d.Ports {
		ports[p.Name] = p.ContainerPort
	}
	for name, address := range map[string][]string{"http": {c.HTTP}, "lm": c.LM, "resp": c.RESP} {
		if len(address) == 0 || !strings.HasPrefix(address[0], "0.0.0.0:") {
			require.NotContains(t, ports, name)
			continue
		}
		require.Equal(t, address[0], "0.0.0.0:"+strconv.Itoa(int(ports[name])))
	}
	ds := r.daemonSet()
	require.Subset(t, ds.Spec.Template.Labels, ds.Spec.Selector.MatchLabels)
}

// told returns what engines are told.
func told(t *testing.T, r *rendered) map[string]string {
	t.Helper()
	return find[*corev1.ConfigMap](t, r.all, "ringcache-connection").Data
}

// tells checks what engines are told.
func tells(t *testing.T, r *rendered, keys []string) {
	t.Helper()
	data := told(t, r)
	var got []string
	for k, v := range data {
		got = append(got, k)
		if strings.HasSuffix(k, ".json") {
			require.True(t, json.Valid([]byte(v)), v)
			require.NotContains(t, v, "$(", "Kubernetes would replace it in the arguments of an engine")
		}
	}
	require.ElementsMatch(t, keys, got)
	if url, ok := data["lm-remote-url"]; ok {
		require.Equal(t, "lm://ringcache.cache.svc:65432", url)
		require.Equal(t, "resp://ringcache.cache.svc:6379", data["resp-remote-url"])
		s := find[*corev1.Service](t, r.all, "ringcache")
		require.Equal(t, corev1.ServiceInternalTrafficPolicyLocal, *s.Spec.InternalTrafficPolicy)
		require.Subset(t, r.daemonSet().Spec.Template.Labels, s.Spec.Selector)
		for _, p := range s.Spec.Ports {
			require.Equal(t, p.Name, p.TargetPort.String(), "a port of the container has the name")
			require.Equal(t, map[string]int32{"lm": 65432, "resp": 6379}[p.Name], p.Port)
		}
	}
}

// TestDirectory: the directory's flags are those of the command, its ports are served, and it has no privileges.
func TestDirectory(t *testing.T) {
	r := render(t, installs["directory"].values)
	d := find[*appsv1.Deployment](t, r.all, "ringcache-directory")
	s := find[*corev1.Service](t, r.all, "ringcache-directory")
	require.Subset(t, d.Spec.Template.Labels, s.Spec.Selector)
	require.NotSubset(t, r.daemonSet().Spec.Template.Labels, s.Spec.Selector, "daemons are none of its pods")
	require.EqualValues(t, 1, *d.Spec.Replicas)
	c := d.Spec.Template.Spec.Containers[0]
	require.Equal(
		t,
		[]string{
			"directory",
			"--http=0.0.0.0:9300",
			"--pull=0.0.0.0:8300",
			"--reply=0.0.0.0:8400",
			"--heartbeat=0.0.0.0:8082",
			"--events=tcp://engine-0.engine:5557,instance=engine-0,model=org/model",
			"--chunk-size=128",
		},
		c.Args,
	)
	flags := map[string]string{}
	for _, a := range c.Args[1:] {
		name, value, _ := strings.Cut(strings.TrimPrefix(a, "--"), "=")
		flags[name] = value
	}
	for _, p := range s.Spec.Ports {
		require.Equal(t, p.Name, p.TargetPort.String())
		require.Equal(t, "0.0.0.0:"+strconv.Itoa(int(p.Port)), flags[p.Name])
	}
	require.Len(t, c.Ports, 4)
	require.True(t, *d.Spec.Template.Spec.SecurityContext.RunAsNonRoot)
	require.False(t, *c.SecurityContext.AllowPrivilegeEscalation)
	require.Equal(t, "http://ringcache-directory.cache.svc:9300", told(t, r)["directory-url"])
}

// TestOwnPods: values for pods are in their places.
func TestOwnPods(t *testing.T) {
	r := render(t, installs["pods of one's own"].values)
	ds := r.daemonSet()
	pod, d := ds.Spec.Template.Spec, r.daemon()
	require.Equal(t, "registry.example/ringcache:1.2.3", d.Image)
	require.Equal(t, "30Gi", d.Resources.Limits.Memory().String())
	require.Equal(t, "4", d.Resources.Limits.Cpu().String())
	require.Equal(t, map[string]string{"pool": "inference"}, pod.NodeSelector)
	require.EqualValues(t, 1000, *pod.SecurityContext.RunAsUser)
	require.Equal(t, "system-node-critical", pod.PriorityClassName)
	require.Equal(t, []corev1.LocalObjectReference{{Name: "registry"}}, pod.ImagePullSecrets)
	require.Equal(t, appsv1.OnDeleteDaemonSetStrategyType, ds.Spec.UpdateStrategy.Type)
	require.Equal(t, "inference", ds.Spec.Template.Labels["team"])
	require.Equal(t, map[string]string{"a/b": "c"}, ds.Spec.Template.Annotations)
	paths := map[string]string{}
	for _, v := range pod.Volumes {
		paths[v.Name] = v.HostPath.Path
	}
	require.Equal(t, map[string]string{"shm": "/dev/shm", "run": "/run/vllm", "cache": "/mnt/nvme0/ringcache"}, paths)
	require.Contains(t, r.notes, "/run/vllm")
}

// TestNotes: what `helm install` prints has the parts of an engine's pod, which are what Kubernetes takes.
func TestNotes(t *testing.T) {
	for _, kv := range []bool{true, false} {
		r := render(t, values{"lmcache": values{"enabled": kv}})
		_, rest, ok := strings.Cut(r.notes, "    volumes:\n")
		require.True(t, ok)
		podText, containerText, ok := strings.Cut(rest, "\nand in its container:\n")
		require.True(t, ok)
		var pod corev1.PodSpec
		require.NoError(t, yaml.UnmarshalStrict([]byte("    volumes:\n"+podText), &pod))
		var engine corev1.Container
		require.NoError(t, yaml.UnmarshalStrict([]byte(containerText), &engine))
		usesTheDaemon(t, r, pod.Volumes, engine)
	}
}

// usesTheDaemon checks that an engine shares memory and socket with the daemons that were rendered, and takes its
// connectors from their ConfigMap.
func usesTheDaemon(t *testing.T, r *rendered, volumes []corev1.Volume, engine corev1.Container) {
	t.Helper()
	source := func(list []corev1.Volume, mounts []corev1.VolumeMount, path string) corev1.VolumeSource {
		for _, m := range mounts {
			for _, v := range list {
				if m.MountPath == path && m.Name == v.Name {
					return v.VolumeSource
				}
			}
		}
		t.Fatalf("nothing is mounted at %s", path)
		return corev1.VolumeSource{}
	}
	pod, d := r.daemonSet().Spec.Template.Spec, r.daemon()
	for _, path := range []string{"/dev/shm", "/run/ringcache"} {
		require.Equal(t, source(pod.Volumes, d.VolumeMounts, path), source(volumes, engine.VolumeMounts, path), path)
	}
	data := told(t, r)
	connectors := 0
	for i, a := range engine.Args {
		if a != "--kv-transfer-config" && a != "--ec-transfer-config" {
			continue
		}
		connectors++
		name := strings.TrimSuffix(strings.TrimPrefix(engine.Args[i+1], "$("), ")")
		for _, e := range engine.Env {
			if e.Name == name {
				require.Equal(t, "ringcache-connection", e.ValueFrom.ConfigMapKeyRef.Name)
				require.Equal(t, strings.TrimPrefix(a, "--")+".json", e.ValueFrom.ConfigMapKeyRef.Key)
				require.Contains(t, data, e.ValueFrom.ConfigMapKeyRef.Key)
			}
		}
		require.Contains(t, containerEnv(engine), name)
	}
	require.Positive(t, connectors)
}

func containerEnv(c corev1.Container) (names []string) {
	for _, e := range c.Env {
		names = append(names, e.Name)
	}
	return names
}
