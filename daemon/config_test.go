package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// write makes a file with a text, and returns its path.
func write(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ringcache.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// problems returns everything that Load refuses.
func loadProblems(t testing.TB, s Sources) []string {
	t.Helper()
	c, err := s.Load()
	var wrong *ConfigError
	require.ErrorAs(t, err, &wrong)
	require.Equal(t, Config{}, c)
	return wrong.Problems
}

func TestDefaultsAreValid(t *testing.T) {
	c, err := Sources{}.Load()
	require.NoError(t, err)
	require.NoError(t, c.Validate())
	require.Equal(t, "/run/ringcache/ringcache.sock", c.Socket)
	require.Equal(t, int64(1<<30), c.Size)
	require.Equal(t, 30*time.Second, c.Grace)
	require.Equal(t, "127.0.0.1:9401", c.HTTP)
	require.Empty(t, c.Quotas)
	require.Error(t, Config{}.Validate(), "the zero value is not valid")
}

// TestSettingsAreComplete: a field of Config that lacks a tag would have no flag, or one without help.
func TestSettingsAreComplete(t *testing.T) {
	seen := map[string]bool{}
	for f := range reflect.TypeFor[Config]().Fields() {
		if !f.IsExported() {
			continue
		}
		name := f.Tag.Get("name")
		require.Regexp(t, `^[a-z]+[0-9]?(-[a-z]+)*$`, name, f.Name)
		require.False(t, seen[name], name)
		seen[name] = true
		require.NotEmpty(t, f.Tag.Get("help"), name)
		require.NotContains(t, f.Tag.Get("help"), "`", name)
		require.Equal(t, f.Type.Kind() == reflect.Int64 && f.Type != reflect.TypeFor[time.Duration](), f.Tag.Get("is") == "bytes", name)
		require.Equal(t, f.Type.Kind() != reflect.Bool, f.Tag.Get("placeholder") != "", name)
		require.False(t, othersVariables.MatchString(variable(name)), "%s is what Kubernetes sets for a service", name)
		require.NotEqual(t, fileVariable, variable(name))
	}
	require.Greater(t, len(settings), 20)
}

func TestPrecedence(t *testing.T) {
	file := write(t, "name: file\ngrace: 1m\nsize: 2GiB\nquotas: [a=1KiB, b=2KiB]\n")
	s := Sources{File: file, Environ: []string{"RINGCACHE_NAME=environment", "RINGCACHE_GRACE=2m", "RINGCACHE_SOCKET=", "OTHER=1"}, Flags: map[string]string{"name": "flag"}}
	c, err := s.Load()
	require.NoError(t, err)
	require.Equal(t, "flag", c.Name)
	require.Equal(t, 2*time.Minute, c.Grace, "the environment wins over the file")
	require.Equal(t, int64(2<<30), c.Size, "the file wins over the default")
	require.Equal(t, []string{"a=1KiB", "b=2KiB"}, c.Quotas)
	require.Equal(t, "/run/ringcache/ringcache.sock", c.Socket, "an empty variable is not set")

	s.Flags = map[string]string{"quotas": "c=3KiB"}
	c, err = s.Load()
	require.NoError(t, err)
	require.Equal(t, []string{"c=3KiB"}, c.Quotas, "a list is replaced, not extended")
	require.Equal(t, "environment", c.Name)

	c, err = Sources{Environ: []string{"RINGCACHE_CONFIG=" + file}}.Load()
	require.NoError(t, err)
	require.Equal(t, "file", c.Name)
	c, err = Sources{File: write(t, "name: other"), Environ: []string{"RINGCACHE_CONFIG=" + file}}.Load()
	require.NoError(t, err)
	require.Equal(t, "other", c.Name)
}

// TestEverythingWrongIsReported at once, with where it is from.
func TestEverythingWrongIsReported(t *testing.T) {
	file := write(t, "sise: 4GiB\ngrace: soon\ndisk: /x?layout=squashed\n")
	got := loadProblems(t, Sources{
		File:    file,
		Environ: []string{"RINGCACHE_DISC=/x", "RINGCACHE_MAX_SESSIONS=many", "RINGCACHE_HTTP=0.0.0.0:9401"},
		Flags:   map[string]string{"size": "4X", "log-level": "loud", "socket": "relative.sock", "sockets": "x"},
	})
	want := []string{
		`variable RINGCACHE_DISC: no setting has this name; did you mean RINGCACHE_DISK?`,
		`line 1 of ` + file + `: key "sise": no setting has this name; did you mean size?`,
		`flag --sockets: no setting has this name; did you mean --socket?`,
		`size (flag --size): "4X" is no size: write it as 512MiB or 4GiB (512M and 4G are the same), or as a whole number of bytes`,
		`grace (line 2 of ` + file + `): "soon" is no time: write it as 30s, 5m or 1h30m`,
		`max-sessions (variable RINGCACHE_MAX_SESSIONS): "many" is no whole number`,
		`socket (flag --socket): "relative.sock" must be an absolute path of at most 107 bytes`,
		`disk (line 3 of ` + file + `): /x?layout=squashed: the layout "squashed" is not one of native, vllm-ec, lmcache: invalid argument`,
		`http (variable RINGCACHE_HTTP): "0.0.0.0:9401" is reached from other machines, without a password: use 127.0.0.1:9401, or set http-any if that is meant`,
		`log-level (flag --log-level): "loud" is not one of debug, info, warn, error`,
	}
	require.Equal(t, want, got)
}

func TestFilesThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"unknown":        {"sockte: /x\n", `line 1 of FILE: key "sockte": no setting has this name; did you mean socket?`},
		"far from all":   {"qqqqqqqqqqqqqqqqq: 1\n", "no setting has this name; `ringcache serve --help` lists all"},
		"twice":          {"size: 1GiB\nname: x\nsize: 2GiB\n", "size (line 3 of FILE): is in line 1 of FILE, too"},
		"no value":       {"disk:\n", "disk (line 1 of FILE): has no value"},
		"null":           {"disk: null\n", "has no value"},
		"a mapping":      {"disk: {folder: /x}\n", "must be a text or a list of texts"},
		"a mapping in a": {"quotas: [{a: 1}]\n", "is a list with something else than texts"},
		"list of one":    {"size: [1GiB, 2GiB]\n", "size (line 1 of FILE): has 2 values, and takes one"},
		"no list":        {"size: []\n", "has 0 values"},
		"an alias":       {"name: &a x\nsocket: *a\n", "must be a text or a list of texts"},
		"a list":         {"- size\n", "is no mapping"},
		"a text":         {"size\n", "is no mapping"},
		"two documents":  {"size: 1GiB\n---\nsize: 1GiB\n", "behind its first document"},
		"no YAML":        {"size: [", "is no YAML file"},
		"odd key":        {"? [a]\n: b\n", "a key must be the name of a setting"},
		"a merge":        {"<<: {size: 1GiB}\n", "no setting has this name"},
		"config":         {"config: x\n", "no setting has this name"},
		"yes":            {"prefault: yes\n", `"yes" is not true or false`},
		"a plain number": {"grace: 30\n", `"30" is no time`},
		"huge":           {strings.Repeat("# x\n", maxConfigFile/4+1), "has more than 1048576 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			file := write(t, c.text)
			got := strings.ReplaceAll(strings.Join(loadProblems(t, Sources{File: file}), "\n"), file, "FILE")
			require.Contains(t, got, c.want)
		})
	}
	got := loadProblems(t, Sources{File: filepath.Join(t.TempDir(), "none.yaml")})
	require.Len(t, got, 1)
	require.Contains(t, got[0], "can't be read")
	for _, text := range []string{"", "# nothing\n", "---\n"} {
		_, err := Sources{File: write(t, text)}.Load()
		if text == "---\n" {
			require.ErrorContains(t, err, "is no mapping")
			continue
		}
		require.NoError(t, err, "%q", text)
	}
}

// TestWhatIsWrittenIsMeant: YAML's own ideas of off, 010 and 1e3 play no part.
func TestWhatIsWrittenIsMeant(t *testing.T) {
	c, err := Sources{File: write(t, "http: off\nname: 0x10\nshm-dir: \"\"\nmax-sessions: 010\nsize: 4096000\nredis: a:1,b:2\n")}.Load()
	require.NoError(t, err)
	require.Equal(t, "off", c.HTTP)
	require.Equal(t, "0x10", c.Name)
	require.Equal(t, 10, c.MaxSessions)
	require.Equal(t, "a:1,b:2", c.Redis, "commas are of a list only where a list is meant")
}

// TestVariablesOfOthersAreFine: a service ringcache in a cluster of Kubernetes sets all of these.
func TestTimesAreWrittenWithoutZeros(t *testing.T) {
	require.Equal(t, "5m", formatTime(5*time.Minute))
	require.Equal(t, "1h", formatTime(time.Hour))
	require.Equal(t, "1h30m", formatTime(90*time.Minute))
	require.Equal(t, "10m10s", formatTime(610*time.Second))
}

func TestVariablesOfOthersAreFine(t *testing.T) {
	_, err := Sources{Environ: []string{
		"RINGCACHE_SERVICE_HOST=10.0.0.1", "RINGCACHE_SERVICE_PORT=9401", "RINGCACHE_SERVICE_PORT_METRICS=9401", "RINGCACHE_PORT=tcp://10.0.0.1:9401",
		"RINGCACHE_PORT_9401_TCP=tcp://10.0.0.1:9401", "RINGCACHE_PORT_9401_TCP_PROTO=tcp", "RINGCACHE_PORT_9401_TCP_PORT=9401", "RINGCACHE_PORT_9401_TCP_ADDR=10.0.0.1",
		"RINGCACHE_METRICS_SERVICE_HOST=10.0.0.1", "RINGCACHE_METRICS_PORT_1_UDP=x", "RINGCACHE_VLLM_PIN=1", "RINGCACHE_KILL_AT=x:1", "RINGCACHE=1", "RINGCACHER_X=1",
	}}.Load()
	require.NoError(t, err)
	for _, name := range []string{"RINGCACHE_PORTS", "RINGCACHE_SERVE_SIZE", "RINGCACHE_size", "RINGCACHE_", "RINGCACHE_DISK-SIZE", "RINGCACHE_VLLM"} {
		require.Len(t, loadProblems(t, Sources{Environ: []string{name + "=1"}}), 1, name)
	}
	require.Contains(t, loadProblems(t, Sources{Environ: []string{"RINGCACHE_DISK_SIZES=1"}})[0], "did you mean RINGCACHE_DISK_SIZE?")
}

// TestPrintedConfigurationIsAFile: whatever the values are, the printed file gives them back.
func TestPrintedConfigurationIsAFile(t *testing.T) {
	text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "off", "null", "~", "true", "1", "- a", "a: b", "#a", " a ", "*a", "&a", "!a", "'", "\"", "a\nb", "\t", "---", "<<", "=", "0x1"}))
	path := filepath.Join(t.TempDir(), "printed.yaml")
	rapid.Check(t, func(t *rapid.T) {
		var c Config
		v := reflect.ValueOf(&c).Elem()
		for i := range v.NumField() {
			if !v.Type().Field(i).IsExported() {
				continue
			}
			switch f := v.Field(i).Addr().Interface().(type) {
			case *string:
				*f = text.Draw(t, "text")
			case *bool:
				*f = rapid.Bool().Draw(t, "bool")
			case *int:
				*f = rapid.Int().Draw(t, "int")
			case *int64:
				*f = rapid.Int64Range(0, 1<<62).Draw(t, "bytes")
			case *time.Duration:
				*f = time.Duration(rapid.Int64Range(0, 1<<60).Draw(t, "time"))
			case *[]string:
				for range rapid.IntRange(0, 3).Draw(t, "n") {
					if e := text.Draw(t, "element"); e != "" {
						*f = append(*f, e)
					}
				}
			default:
				t.Fatalf("a field of the type %T", f)
			}
		}
		b, err := c.YAML()
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, b, 0o600))
		values, wrong := fromFile(path)
		require.Empty(t, wrong, "%s", b)
		var back Config
		for _, s := range settings {
			require.NoError(t, s.set(&back, values[s.key].texts), "%s in\n%s", s.key, b)
		}
		require.Equal(t, c, back, "%s", b)
	})
}

// TestPrintedConfigurationLoads, with all settings set.
func TestPrintedConfigurationLoads(t *testing.T) {
	password := write(t, "secret\n")
	s := Sources{Flags: map[string]string{
		"size": "123456789", "quotas": "a=1MiB,b=c=2", "disk": "/var/x?layout=vllm-ec&space=Qwen2-VL", "disk-size": "10GiB", "disk-write": "around",
		"disk-quota": "2GiB", "disk-quotas": "a=1GiB",
		"redis": "redis+sentinel://a:1,b:2/main/3?prefix=x%3A&ttl=1h", "redis-user": "u", "redis-password-file": password, "redis-sentinel-password-file": password,
		"http": "[::1]:0", "grace": "90s", "drain": "0s", "max-held": "3GiB", "max-lease": "1h30m", "log-format": "json", "prefault": "true", "shm-dir": "/mnt/shm", "max-leases": "17",
	}}
	c, err := s.Load()
	require.NoError(t, err)
	b, err := c.YAML()
	require.NoError(t, err)
	require.NotContains(t, string(b), "secret")
	again, err := Sources{File: write(t, string(b))}.Load()
	require.NoError(t, err, "%s", b)
	require.Equal(t, c, again)
	require.Equal(t, map[string]int64{"a": 1 << 20, "b=c": 2}, quotasOf(c.Quotas))
	require.Equal(t, map[string]int64{"a": 1 << 30}, quotasOf(c.DiskQuotas))
}

func TestValuesThatAreRefused(t *testing.T) {
	empty, two := write(t, "\n"), write(t, "a\nb\n")
	for _, c := range []struct {
		flags map[string]string
		want  string
	}{
		{map[string]string{"size": "0"}, `size (flag --size): 0 holds nothing`},
		{map[string]string{"size": "100"}, `size (flag --size): memory: Size is 100, and the least is`},
		{map[string]string{"name": ""}, `name (flag --name): memory: Name is empty`},
		{map[string]string{"name": "a/b"}, `name (flag --name): `},
		{map[string]string{"shm-dir": "x"}, `shm-dir (flag --shm-dir): "x" must be an absolute path`},
		{map[string]string{"socket": "/" + strings.Repeat("x", 107)}, "at most 107 bytes"},
		{map[string]string{"quotas": "a"}, `"a" is not TENANT=SIZE`},
		{map[string]string{"quotas": "a=1,a=2"}, `the tenant "a" has more than one quota`},
		{map[string]string{"quotas": "a=x"}, `quotas (flag --quotas): "x" is no size`},
		{map[string]string{"quotas": strings.Repeat("a", 256) + "=1"}, "256 bytes, the most is 255"},
		{map[string]string{"disk-quota": "1GiB"}, "disk-quota (flag --disk-quota): is set, and disk is not"},
		{map[string]string{"disk": "/x", "disk-quotas": "a"}, `disk-quotas (flag --disk-quotas): "a" is not TENANT=SIZE`},
		{map[string]string{"max-objects": "-1"}, "is not between 0 and 16777216"},
		{map[string]string{"max-leases": "2000000"}, "is not between 0 and 1048575"},
		{map[string]string{"disk-size": "1GiB"}, "disk-size (flag --disk-size): is set, and disk is not"},
		{map[string]string{"disk": "x"}, `disk (flag --disk): "x" must be the absolute path of a folder`},
		{map[string]string{"disk": "/x?layout=vllm-ec"}, "disk (flag --disk): /x?layout=vllm-ec names no space"},
		{map[string]string{"disk": "/x?layot=vllm-ec"}, `and not "layot"`},
		{map[string]string{"disk": "shm:x"}, `disk (flag --disk): "shm:x" must be the absolute path of a folder`},
		{map[string]string{"disk": "/x?space=" + strings.Repeat("s", 256)}, "disk (flag --disk): disk: Space has more than 255 bytes"},
		{map[string]string{"disk": "/x", "disk-write": "through"}, `disk-write (flag --disk-write): "through" is not one of back, around`},
		{map[string]string{"redis": "redis://:secret@h"}, "redis-password-file"},
		{map[string]string{"redis": "secret@h:1"}, "redis-password-file"},
		{map[string]string{"redis": "http://h"}, "unknown scheme"},
		{map[string]string{"s3": "s3://key@bucket"}, "credentials are in the environment"},
		{map[string]string{"s3": "http://h/b"}, "s3 (flag --s3): "},
		{map[string]string{"redis": "h:0"}, "redis (flag --redis): "},
		{map[string]string{"redis": "h", "redis-password-file": empty}, "must contain one line"},
		{map[string]string{"redis": "h", "redis-password-file": two}, "must contain one line"},
		{map[string]string{"redis": "h", "redis-password-file": "/none"}, "no such file"},
		{map[string]string{"redis": "h", "redis-password-file": "/dev/zero"}, "is no file of at most"},
		{map[string]string{"redis-user": "u"}, "redis-user (flag --redis-user): is set, and redis is not"},
		{map[string]string{"http": "9401"}, "is not HOST:PORT"},
		{map[string]string{"http": ":9401"}, "is reached from other machines"},
		{map[string]string{"lmcache": "grpc://0.0.0.0:9500"}, "is reached from other machines"},
		{map[string]string{"lmcache": "grpc+unix://kv.sock"}, "is not grpc+unix:///PATH"},
		{map[string]string{"lmcache": "tcp://0.0.0.0:9500"}, "use tcp://127.0.0.1:9500"},
		{map[string]string{"lmcache": "tcp://127.0.0.1"}, "is not grpc+unix:///PATH"},
		{map[string]string{"lmcache": "ipc://kv.sock"}, "is not grpc+unix:///PATH or ipc:///PATH"},
		{map[string]string{"lmcache": "ipc://@abstract"}, "is not grpc+unix:///PATH or ipc:///PATH"},
		{map[string]string{"lmcache": "inproc://kv"}, "is not grpc+unix:///PATH"},
		{map[string]string{"lmcache-coordinator": "http://h:9300"}, "both are needed"},
		{map[string]string{"lmcache": "grpc://127.0.0.1:9500", "lmcache-coordinator": "h:9300"}, "is not http://HOST:PORT"},
		{map[string]string{"lmcache": "grpc://127.0.0.1:9500", "lmcache-coordinator": "http://h:9300", "lmcache-instance": "a/b"}, "has a slash"},
		{map[string]string{"http": "127.0.0.1.evil.example:1"}, "is reached from other machines"},
		{map[string]string{"http": "127.0.0.1:99999"}, "is not HOST:PORT"},
		{map[string]string{"http": "example.com:1", "http-any": "true"}, "is no IP address"},
		{map[string]string{"http": ""}, "is not HOST:PORT"},
		{map[string]string{"grace": "0s"}, "grace (flag --grace): 0s is not a time up to 720h"},
		{map[string]string{"grace": "-1s"}, "is not a time"},
		{map[string]string{"drain": "721h"}, "is not a time up to 720h"},
		{map[string]string{"max-sessions": "0"}, "is not between 1"},
		{map[string]string{"max-held": "-1"}, "is no size"},
		{map[string]string{"default-lease": "2h"}, "2h is longer than max-lease, 1h"},
		{map[string]string{"log-format": "xml"}, "is not one of logfmt, json"},
		{map[string]string{"prefault": "maybe"}, "is not true or false"},
	} {
		t.Run(fmt.Sprint(c.flags), func(t *testing.T) {
			got := loadProblems(t, Sources{Flags: c.flags})
			require.Len(t, got, 1)
			require.Contains(t, got[0], c.want)
			require.NotContains(t, got[0], "secret")
		})
	}
	for _, flags := range []map[string]string{
		{"http": "0.0.0.0:9401", "http-any": "true"}, {"http": ":9401", "http-any": "true"}, {"http": "localhost:1"}, {"http": "[::1]:1"},
		{"lmcache": "grpc+unix:///run/kv,grpc://127.0.0.1:9500"}, {"lmcache": "ipc:///run/kv,tcp://127.0.0.1:9500"}, {"http": "off", "http-any": "true"},
		{"redis": "h:1,h:2"}, {"redis": "unix:///run/redis.sock"}, {"disk": "/x?layout=vllm-ec&space=s"}, {"drain": "0s"},
	} {
		_, err := Sources{Flags: flags}.Load()
		require.NoError(t, err, "%v", flags)
	}
}

// TestProblemsHaveSettings: an error about no setting would lose its origin.
func TestProblemsHaveSettings(t *testing.T) {
	c := Config{Disk: "x", Redis: "x://", Quotas: []string{"x"}, Quota: -1, MaxHeld: -1, ShmDir: "x", MaxObjects: -1, MaxLeases: -1}
	var keys []string
	for _, p := range c.problems() {
		require.NotNil(t, find(p.key), p.key)
		require.NotEmpty(t, p.text)
		keys = append(keys, p.key)
	}
	require.True(t, slices.IsSortedFunc(keys, func(a, b string) int { return order(a) - order(b) }), "%v", keys)
	require.Greater(t, len(keys), 15)
	require.Regexp(t, `(?s)^the configuration is wrong in \d+ places:\n  socket: `, c.Validate())
}

func FuzzConfigFile(f *testing.F) {
	f.Add([]byte("size: 4GiB\nquotas: [a=1]\n"))
	f.Add([]byte("a: &a [*a]\n? x\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		values, wrong := parseFile("f", b)
		for key, v := range values {
			s := find(key)
			require.NotNil(t, s, key)
			require.NotEmpty(t, v.origin)
			var c Config
			_ = s.set(&c, v.texts)
		}
		for _, p := range wrong {
			require.NotEmpty(t, p)
		}
	})
}
