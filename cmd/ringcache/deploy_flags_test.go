package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon"
)

// parsed returns the configuration of a command line of ringcache, and the command.
func parsed(t *testing.T, args []string) (daemon.Config, string) {
	t.Helper()
	c := newCommands()
	parser, err := kong.New(c, append(options(), kong.Exit(func(int) { t.Fatalf("%q is refused", args) }))...)
	require.NoError(t, err)
	ctx, err := parser.Parse(args)
	require.NoError(t, err, "%q", args)
	config, err := c.Serve.load()
	require.NoError(t, err, "%q", args)
	return config, ctx.Command()
}

// bytesOf reads sizes as Docker, Kubernetes and mount write them.
func bytesOf(t *testing.T, text string) int64 {
	t.Helper()
	m := regexp.MustCompile(`^(\d+)(?:([kmgKMG])i?)?$`).FindStringSubmatch(text)
	require.NotNil(t, m, text)
	n, err := strconv.ParseInt(m[1], 10, 64)
	require.NoError(t, err)
	return n << map[string]int{"": 0, "k": 10, "m": 20, "g": 30}[strings.ToLower(m[2])]
}

// fits checks the sizes of one daemon: the mount of shared memory, its memory limit, and the time that its
// end has.
func fits(t *testing.T, c daemon.Config, shm, limit int64, end time.Duration) {
	t.Helper()
	require.Equal(t, "/run/ringcache", filepath.Dir(c.Socket), "the folder that is shared")
	require.Equal(t, "/var/cache/ringcache", c.Disk)
	require.Empty(t, c.ShmDir)
	if shm > 0 {
		require.GreaterOrEqual(t, shm, c.Size+c.Size/10, "room for size, its tables and the engine's own")
	}
	require.GreaterOrEqual(t, limit, c.Size+1<<30, "shared memory counts against the limit")
	require.Greater(t, end, c.Drain)
}

// asksStatus checks a probe.
func asksStatus(t *testing.T, command []string) {
	t.Helper()
	require.NotEmpty(t, command)
	require.Equal(t, "/ringcache", command[0])
	_, name := parsed(t, command[1:])
	require.Equal(t, "serve status", name)
}

// usesConnector checks the engine's setting, whose class the wheel has.
func usesConnector(t *testing.T, args []string) {
	t.Helper()
	for i, a := range args {
		if a != "--ec-transfer-config" {
			continue
		}
		config := map[string]string{}
		require.NoError(t, json.Unmarshal([]byte(args[i+1]), &config))
		require.Equal(t, map[string]string{"ec_connector": "EncoderCacheConnector",
			"ec_connector_module_path": "ringcache.vllm", "ec_role": "ec_both"}, config)
		return
	}
	t.Fatalf("%q has no --ec-transfer-config", args)
}

// servesLMCache checks that a daemon listens where an engine with LMCache looks for a server.
func servesLMCache(t *testing.T, c daemon.Config, engine []string) {
	t.Helper()
	url := usesLMCache(t, engine)
	require.Equal(t, []string{url}, c.LMCache)
	require.Equal(t, "grpc+unix://"+filepath.Dir(c.Socket), url[:strings.LastIndex(url, "/")], "the folder that is shared")
}

func TestDeploymentOfCompose(t *testing.T) {
	var file composeFile
	readYAML(t, deployed("compose.yaml"), &file)
	server, engine := file.Services["ringcache"], file.Services["engine"]
	c, name := parsed(t, server.Command)
	require.Equal(t, "serve run", name)
	end, err := time.ParseDuration(server.StopGrace)
	require.NoError(t, err)
	m := regexp.MustCompile(`size=(\w+)`).FindStringSubmatch(file.Volumes["shm"].DriverOpts["o"])
	require.NotNil(t, m)
	fits(t, c, bytesOf(t, m[1]), bytesOf(t, server.MemLimit), end)
	asksStatus(t, server.Healthcheck.Test[1:])
	usesConnector(t, engine.Command)
	require.Equal(t, server.User, engine.User)
	require.Equal(t, "host", server.PID)
	for _, v := range []string{"shm:/dev/shm", "run:/run/ringcache"} {
		require.Contains(t, server.Volumes, v)
		require.Contains(t, engine.Volumes, v)
	}
	require.Contains(t, server.Volumes, "cache:"+c.Disk)

	var kv composeFile
	readYAML(t, deployed("compose.kv.yaml"), &kv)
	withKV, name := parsed(t, kv.Services["ringcache"].Command)
	require.Equal(t, "serve run", name)
	servesLMCache(t, withKV, kv.Services["engine"].Command)
	withKV.LMCache = c.LMCache
	require.Equal(t, c, withKV, "it adds KV to compose.yaml, and nothing else")

	text, err := os.ReadFile(deployed("Containerfile"))
	require.NoError(t, err)
	require.Contains(t, string(text), " AS "+kv.Services["engine"].Build.Target+"\n")
	for _, s := range []composeService{server, engine} {
		require.Contains(t, string(text), " AS "+s.Build.Target+"\n")
		require.FileExists(t, filepath.Join(deployed(), s.Build.Context, s.Build.Dockerfile))
	}
}

func TestDeploymentOfImage(t *testing.T) {
	text, err := os.ReadFile(deployed("Containerfile"))
	require.NoError(t, err)
	commands := regexp.MustCompile(`(?m)^(?:ENTRYPOINT|CMD|HEALTHCHECK.* CMD) (\[.*\])$`).FindAllSubmatch(text, -1)
	require.Len(t, commands, 3)
	var entry, cmd, health []string
	for i, into := range []*[]string{&entry, &cmd, &health} {
		require.NoError(t, json.Unmarshal(commands[i][1], into))
	}
	require.Equal(t, []string{"/ringcache"}, entry)
	parsed(t, cmd)
	asksStatus(t, health)
	m := regexp.MustCompile(`(?m)^ARG GO_IMAGE=golang:(.*)$`).FindSubmatch(text)
	require.NotNil(t, m)
	mod, err := os.ReadFile(filepath.Join("..", "..", "go.mod"))
	require.NoError(t, err)
	require.Contains(t, string(mod), "\ngo "+string(m[1])+".", "the image has the release of Go that go.mod names")
}

func TestDeploymentOfKubernetes(t *testing.T) {
	for _, name := range []string{"sidecar.yaml", "kv.yaml", "daemonset.yaml"} {
		t.Run(name, func(t *testing.T) {
			var pods []pod
			told := map[string]map[string]string{} // by ConfigMap
			for _, m := range readManifests(t, name) {
				if m.Kind == "ConfigMap" {
					told[m.Metadata.Name] = m.Data
					continue
				}
				pods = append(pods, m.Spec.Template.Spec)
			}
			server, engine := pods[0], pods[len(pods)-1]
			shm, mounts := int64(0), map[string]string{}
			for _, p := range []pod{server, engine} {
				require.Equal(t, map[string]any{"runAsUser": 0, "runAsGroup": 0,
					"seccompProfile": map[string]any{"type": "RuntimeDefault"}}, p.SecurityContext)
				for _, v := range p.Volumes {
					source := ""
					switch {
					case v.HostPath != nil:
						source = v.HostPath.Path
					case v.EmptyDir != nil && v.EmptyDir.Medium == "Memory":
						source = "memory of the pod"
						if v.Name == "shm" {
							shm = bytesOf(t, v.EmptyDir.SizeLimit)
						}
					default:
						source = "disk of the pod"
					}
					if old, ok := mounts[v.Name]; ok {
						require.Equal(t, old, source, "one volume for both")
					}
					mounts[v.Name] = source
				}
			}
			var d container
			if name != "daemonset.yaml" {
				require.True(t, server.ShareProcessNamespace)
				require.Equal(t, "memory of the pod", mounts["shm"])
				d = server.InitContainers[0]
			} else {
				require.True(t, server.HostPID)
				require.Equal(t, "/dev/shm", mounts["shm"])
				require.Equal(t, "/run/ringcache", mounts["run"])
				d = server.Containers[0]
			}
			c, command := parsed(t, d.Args)
			require.Equal(t, "serve run", command)
			fits(t, c, shm, bytesOf(t, d.Resources.Limits["memory"]), time.Duration(server.Grace)*time.Second)
			asksStatus(t, d.StartupProbe.Exec.Command)
			asksStatus(t, d.LivenessProbe.Exec.Command)
			require.NotContains(t, d.SecurityContext, "runAsUser")

			e := engine.Containers[0]
			args := e.arguments(told)
			if name == "kv.yaml" {
				servesLMCache(t, c, args)
			} else {
				usesConnector(t, args)
			}
			for _, data := range told {
				servesLMCache(t, c, []string{"--kv-transfer-config", data["kv-transfer-config.json"]})
			}
			require.NotContains(t, e.SecurityContext, "runAsUser", "the user is the pod's")
			for path, volume := range map[string]string{"/dev/shm": "shm", "/run/ringcache": "run"} {
				require.Equal(t, volume, d.mounted(path))
				require.Equal(t, volume, e.mounted(path))
			}
			require.Equal(t, "cache", d.mounted(c.Disk))
		})
	}
}

// arguments returns the arguments of a container, with what Kubernetes puts in the place of variables.
func (c container) arguments(told map[string]map[string]string) (args []string) {
	for _, a := range c.Args {
		for _, e := range c.Env {
			if from := e.ValueFrom.ConfigMapKeyRef; from.Name != "" {
				a = strings.ReplaceAll(a, "$("+e.Name+")", told[from.Name][from.Key])
			}
		}
		args = append(args, a)
	}
	return args
}

// mounted returns the volume that a container has at a path.
func (c container) mounted(path string) string {
	for _, m := range c.VolumeMounts {
		if m.MountPath == path {
			return m.Name
		}
	}
	return ""
}

func TestDeploymentOfSystemd(t *testing.T) {
	text, err := os.ReadFile(deployed("systemd", "ringcache.service"))
	require.NoError(t, err)
	service := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(key, "#") {
			if key == "SystemCallFilter" {
				continue // a list of what is allowed, and one of what of that is not
			}
			require.NotContains(t, service, key)
			service[key] = value
		}
	}
	command := strings.Fields(service["ExecStart"])
	require.Equal(t, []string{"/usr/local/bin/ringcache", "serve", "--config", "/etc/ringcache/ringcache.yaml"},
		command)
	command[3] = deployed("systemd", "ringcache.yaml")
	c, name := parsed(t, command[1:])
	require.Equal(t, "serve run", name)
	settings, err := os.ReadFile(command[3])
	require.NoError(t, err)
	withKV := filepath.Join(t.TempDir(), "ringcache.yaml")
	require.NoError(t, os.WriteFile(withKV, []byte(strings.Replace(string(settings), "# lmcache:", "lmcache:", 1)), 0o600))
	kv, _ := parsed(t, []string{"serve", "--config", withKV})
	require.Equal(t, []string{"grpc+unix://" + filepath.Dir(c.Socket) + "/kv.sock"}, kv.LMCache)
	require.Equal(t, "/run/"+service["RuntimeDirectory"], filepath.Dir(c.Socket))
	require.Equal(t, "/var/cache/"+service["CacheDirectory"], c.Disk)
	require.Equal(t, strconv.Itoa(badConfig)+" 80", service["RestartPreventExitStatus"],
		"neither a wrong configuration nor a wrong command line mends itself")
	end, err := time.ParseDuration(service["TimeoutStopSec"])
	require.NoError(t, err)
	require.Greater(t, end, c.Drain)
	files, err := strconv.Atoi(service["LimitNOFILE"])
	require.NoError(t, err)
	require.Greater(t, files, c.MaxConnections+c.MaxSessions+256)
	require.Equal(t, "yes", service["RuntimeDirectoryPreserve"],
		"or the socket of ringcache.socket would go with the service")

	text, err = os.ReadFile(deployed("systemd", "ringcache.socket"))
	require.NoError(t, err)
	require.Contains(t, string(text), "\nListenStream="+c.Socket+"\n")
	require.Contains(t, string(text), "\nSocketUser="+service["User"]+"\n")
	require.Contains(t, string(text), "\nSocketGroup="+service["Group"]+"\n")
}

// TestDeploymentOfDirectory: the unit's command line and the chart's flags are those of `ringcache directory`.
func TestDeploymentOfDirectory(t *testing.T) {
	unit, err := os.ReadFile(deployed("systemd", "ringcache-directory.service"))
	require.NoError(t, err)
	m := regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/ringcache (.*)$`).FindSubmatch(unit)
	require.NotNil(t, m)
	args := strings.Fields(string(m[1]))
	template, err := os.ReadFile(deployed("helm", "ringcache", "templates", "directory.yaml"))
	require.NoError(t, err)
	flags := regexp.MustCompile(`--([a-z-]+)=`).FindAllSubmatch(template, -1)
	require.Len(t, flags, 5)
	for _, f := range flags {
		value := "0.0.0.0:1"
		if string(f[1]) == "events" {
			value = "tcp://engine:5557,instance=engine,model=org/model"
			_, err := eventSource(value)
			require.NoError(t, err)
		}
		args = append(args, "--"+string(f[1])+"="+value)
	}
	parser, err := kong.New(newCommands(), append(options(), kong.Exit(func(int) { t.Fatalf("%q is refused", args) }))...)
	require.NoError(t, err)
	ctx, err := parser.Parse(args)
	require.NoError(t, err, "%q", args)
	require.Equal(t, "directory", ctx.Command())
}
