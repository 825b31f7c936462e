package config

import (
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

func load(t *testing.T, file string, environ ...string) *Config {
	t.Helper()
	c, err := Sources{File: []byte(file), Name: "lmcache.yaml", Environ: environ}.Load()
	require.NoError(t, err)
	return c
}

func problems(c *Config) []string {
	var all []string
	for _, p := range c.Problems {
		all = append(all, p.String())
	}
	return all
}

func TestVariableWinsOverFileAndConnectorOverBoth(t *testing.T) {
	s := Sources{Name: "f", File: []byte("chunk_size: 1\nmax_local_cpu_size: 2\nmin_retrieve_tokens: 3\n"),
		Environ: []string{
			"LMCACHE_MAX_LOCAL_CPU_SIZE='4.5'", "LMCACHE_MIN_RETRIEVE_TOKENS=5",
			"OTHER=1", "LMCACHE_LOG_LEVEL=ERROR",
		},
		Connector: `{"lmcache.min_retrieve_tokens": "6", "lmcache.mp.mq_timeout": 5, "shared": 1}`}
	c, err := s.Load()
	require.NoError(t, err)
	require.Empty(t, c.Problems)
	for name, want := range map[string]struct {
		value  any
		origin string
	}{
		"chunk_size":          {int64(1), "line 1 of f"},
		"max_local_cpu_size":  {4.5, "the variable LMCACHE_MAX_LOCAL_CPU_SIZE"},
		"min_retrieve_tokens": {int64(6), "the configuration of the connector"},
		"cache_policy":        {"LRU", ""},
	} {
		require.Equal(t, want.value, c.Get(name).Value, name)
		require.Equal(t, want.origin, c.Get(name).Origin, name)
	}
}

// What LMCache passes over is named with its place.
func TestProblems(t *testing.T) {
	const ignored = "is no option, and LMCache ignores it"
	const at = " (line 1 of lmcache.yaml): "
	for _, c := range []struct{ file, want string }{
		{"chunk_sise: 5", "chunk_sise" + at + ignored + "; is chunk_size meant?"},
		{"\n\nwhatever_it_is: 5", "whatever_it_is (line 3 of lmcache.yaml): " + ignored},
		{"enable_xpyd: true", "enable_xpyd" + at + "is an old name that LMCache ignores: write enable_pd"},
		{"local_cpu: 'yes'", "local_cpu" + at + `"yes" is false for LMCache: write true or false`},
		{"chunk_size: 5GB",
			"chunk_size" + at + `"5GB" is no whole number; ` +
				`LMCache goes on without a value, and not with its default`},
		{"chunk_size: ~",
			"chunk_size" + at + "has no value, for " +
				"which LMCache does not take its default: remove the line"},
		{"chunk_size: 1\nchunk_size: 2",
			"chunk_size (line 2 of lmcache.yaml): is also in line 1 of lmcache.yaml, " +
				"which LMCache does not see: remove one of them"},
		{"ec_local_dsik: /a", "ec_local_dsik" + at + ignored + "; is local_disk meant?"},
		{"ec: {max_local_cpu_size: much}", "ec.max_local_cpu_size" + at + `"much" is no number; LMCache ignores it`},
		{"5: x", "5" + at + ignored},
		{"hidden_states_retrieve_mode: other",
			"hidden_states_retrieve_mode" + at + `"other" is not prefix_strict or skip_missing_chunks; ` +
				`LMCache goes on without a value, and not with its default`},
	} {
		require.Equal(t, []string{c.want}, problems(load(t, c.file)), c.file)
	}
	of := func(variable, text string) string { return variable + " (the variable " + variable + "): " + text }
	for _, c := range []struct{ variable, want string }{
		{"LMCACHE_CHUNK_SISE=5", of("LMCACHE_CHUNK_SISE", ignored+"; is chunk_size meant?")},
		{"LMCACHE_chunk_size=5", of("LMCACHE_chunk_size", ignored+"; is chunk_size meant?")},
		{"LMCACHE_CHUNK_SIZE=5 GB", of("LMCACHE_CHUNK_SIZE", `"5 GB" is no whole number; LMCache ignores it`)},
		{"LMCACHE_EC_CHUNK_SIZE=x", of("LMCACHE_EC_CHUNK_SIZE", `"x" is no whole number; LMCache ignores it`)},
		{"LMCACHE_CONTROLLER_URL=x",
			of("LMCACHE_CONTROLLER_URL", "is an old name that LMCache ignores: write controller_pull_url")},
	} {
		require.Equal(t, []string{c.want}, problems(load(t, "chunk_size: 7", c.variable)), c.variable)
	}
	c, err := Sources{Connector: `{"lmcache.chunk_size": "x", "lmcache.other": 1}`}.Load()
	require.NoError(t, err)
	require.Len(t, c.Problems, 2)
}

// A value that LMCache can't read leaves what the file has, and without a file nothing, where one expects the
// default.
func TestUnreadVariable(t *testing.T) {
	require.Equal(t, int64(7), load(t, "chunk_size: 7", "LMCACHE_CHUNK_SIZE=x").Get("chunk_size").Value)
	c, err := Sources{Environ: []string{"LMCACHE_CHUNK_SIZE=x"}}.Load()
	require.NoError(t, err)
	require.Nil(t, c.Get("chunk_size").Value)
	require.Contains(t, problems(c)[0], "not with its default")
}

func TestOldNames(t *testing.T) {
	c := load(t, "external_backends: [a, b]\n", "LMCACHE_PLUGIN_LOCATIONS=/p,q")
	require.Empty(t, c.Problems)
	require.Equal(t, []string{"a", "b"}, c.Get("storage_plugins").Value)
	require.Equal(t, []string{"/p,q"}, c.Get("runtime_plugin_locations").Value)
	warnings := strings.Join(c.Translate(Engine{}).Warnings, "\n")
	require.Contains(t, warnings, "external_backends (line 1 of lmcache.yaml) is the old name of storage_plugins")
	c = load(t, "", "LMCACHE_PLUGIN_LOCATIONS=/p", "LMCACHE_RUNTIME_PLUGIN_LOCATIONS=/q")
	require.Equal(t, []string{"/p"}, c.Get("runtime_plugin_locations").Value)
	require.Len(t, c.Problems, 1)
}

func TestRefused(t *testing.T) {
	for file, want := range map[string]string{
		"a: [":                             "is no YAML file",
		"a: 1\n---\nb: 1":                  "something behind its first document",
		"- a":                              "a configuration is a mapping",
		"chunk_size: [1]":                  "chunk_size (line 1 of lmcache.yaml): is a whole number",
		"remote_url: [a]":                  "is a text, and not a list or a mapping",
		"chunk_size: 99999999999999999999": "more digits",
		"min_retrieve_tokens: -1":          "min_retrieve_tokens is -1",
		"enable_controller: true":          "enable_controller needs controller_pull_url",
		"enable_p2p: true":                 "enable_p2p needs enable_controller",
		"enable_pd: true":                  "enable_pd needs pd_role",
		"extra_config: {enable_nixl_storage: yes}": "enable_nixl_storage needs nixl_backend in extra_config",
		"a: &x 1\nb: &x 2":                         "line 2 of lmcache.yaml: the anchor x is there already",

		"a: " + strings.Repeat("[", 200) + strings.Repeat("]", 200): "nested too deeply",
		"x: &x [1,1,1,1,1,1,1,1,1,1]\ny: &y [*x,*x,*x,*x,*x,*x,*x,*x,*x,*x]\nz: &z [*y,*y,*y,*y,*y,*y,*y,*y,*y,*y]\n" +
			"w: &w [*z,*z,*z,*z,*z,*z,*z,*z,*z,*z]\nv: [*w,*w,*w]": "more than 16384 values",
		"a: &a {}\nb: &b {<<: [" + strings.Repeat("*a,", 999) + "*a]}\nc: &c {<<: [" +
			strings.Repeat("*b,", 999) + "*b]}": "more than 16384 values",
		"a: &a {<<: [*a, *a]}":         "nested too deeply",
		strings.Repeat("#", maxFile+1): "more than 1048576 bytes",
	} {
		_, err := Sources{File: []byte(file), Name: "lmcache.yaml"}.Load()
		require.ErrorIs(t, err, fs.ErrInvalid)
		require.ErrorContains(t, err, want)
	}
	_, err := Sources{Environ: []string{"LMCACHE_REMOTE_URL=\xff"}}.Load()
	require.ErrorContains(t, err, "LMCACHE_REMOTE_URL is no UTF-8")
	_, err = Sources{Connector: "[1]"}.Load()
	require.ErrorIs(t, err, fs.ErrInvalid)
}

func server(t *testing.T, environ []string, args ...string) *Config {
	t.Helper()
	c, err := LoadServer("", append([]string{"--l1-size-gb", "8", "--eviction-policy=LRU"}, args...), environ)
	require.NoError(t, err)
	return c
}

func TestServer(t *testing.T) {
	c := server(t, []string{"LMCACHE_COORDINATOR_URL=http://c:1", "LMCACHE_COORDINATOR_EVENT_REPORTING=Yes"},
		"--transp", "grpc", "--no-l1-use-lazy", "--l2-adapter", "{}", "--l2-adapter={ }",
		"--script-allowed-imports", "a", "b", "--null-block-id", "-1")
	for name, want := range map[string]any{
		"transport":                      "grpc",
		"l1-use-lazy":                    false,
		"l2-adapter":                     []string{"{}", "{ }"},
		"script-allowed-imports":         []string{"a", "b"},
		"null-block-id":                  int64(-1),
		"l1-size-gb":                     8.0,
		"coordinator-url":                "http://c:1",
		"coordinator-event-reporting":    true,
		"coordinator-heartbeat-interval": 5.0,
	} {
		require.Equal(t, want, c.Get(name).Value, name)
	}
	for args, want := range map[string]string{
		"":                           "lmcache server needs --l1-size-gb and --eviction-policy",
		"--prt 1":                    "--prt is no flag",
		"--m 1":                      "--m is the beginning of",
		"--port x":                   "--port:",
		"--port":                     "--port needs a value",
		"--l1-mlock=1":               "--l1-mlock takes no value",
		"--enable x":                 "--enable is the beginning of",
		"--help":                     "--help is no configuration",
		"--transport http":           "is not one of zmq, grpc",
		"x":                          `"x" is no flag`,
		"--worker-reap-timeout-s 29": "--worker-reap-timeout-seconds is 29",
		"--chunk-size 0 --l1-size-gb 1 --eviction-policy LRU": "--chunk-size is less than 1",
	} {
		_, err := LoadServer("0.5.7", strings.Fields(args), nil)
		require.ErrorIs(t, err, fs.ErrInvalid)
		require.ErrorContains(t, err, want, args)
	}
	_, err := LoadServer("0.5.6", []string{"--kv-load-policy", "x"}, nil)
	require.ErrorContains(t, err, "--kv-load-policy is no flag of lmcache server, but it is one of LMCache 0.5.7")
	_, err = LoadServer("", []string{"--instance-id", "--coordinator-=/a b"}, nil)
	require.ErrorContains(t, err, "needs a value",
		"argparse takes the beginning of several flags for a flag, with a blank, too")
	_, err = LoadServer("0.5.5", nil, nil)
	require.ErrorContains(t, err, "is not one of 0.5.6, 0.5.7")
}

// Each option has a line that says what it became, also with its default.
func TestEveryOptionHasAMeaning(t *testing.T) {
	seen := 0
	for _, c := range []*Config{load(t, ""), server(t, nil)} {
		for _, r := range c.Translate(Engine{}).Rows {
			if strings.HasPrefix(r.Option, "coordinator-l2-") {
				continue
			}
			require.NotEmpty(t, r.Here, r.Option)
			seen++
		}
	}
	require.Greater(t, seen, 190)
	for name := range translations {
		found := slices.ContainsFunc(slices.Collect(Options()),
			func(o Option) bool { return o.Name == name && o.without == "" })
		require.True(t, found, "%s is an option with a translation", name)
	}
}

func TestTranslate(t *testing.T) {
	for _, c := range []struct {
		file string
		e    Engine
		want []string // settings of the daemon
		warn string
	}{
		{"chunk_size: 512", Engine{}, []string{"lmcache-chunk-size 512"}, ""},
		{"chunk_size: 100", Engine{}, []string{"lmcache-chunk-size 100"}, "not a multiple of vLLM's block size, 16"},
		{"chunk_size: 64", Engine{BlockSize: 128}, []string{"lmcache-chunk-size 64"},
			"not a multiple of vLLM's block size, 128"},
		{"chunk_size: 0", Engine{}, nil, "no engine starts with it"},
		{"max_local_cpu_size: 2.5", Engine{}, []string{"size 2560MiB"}, ""},
		{"max_local_cpu_size: 3", Engine{Workers: 4}, []string{"size 12GiB"}, ""},
		{"max_local_cpu_size: .nan", Engine{}, nil, "the daemon has the size of its default"},
		{"local_cpu: no", Engine{}, nil, "local_cpu is off"},
		{"local_disk: file:///a/\nmax_local_disk_size: 10", Engine{},
			[]string{"disk /a/ringcache", "disk-size 10GiB"}, ""},
		{"local_disk: /a,/b\nmax_local_disk_size: 10", Engine{},
			[]string{"disk /a/ringcache"}, "local_disk has 2 folders"},
		{"local_disk: /a", Engine{}, nil, "max_local_disk_size is not: LMCache has no disk"},
		{"local_disk: a\nmax_local_disk_size: 10", Engine{}, nil, "is relative"},
		{"remote_url: redis://h:1", Engine{}, []string{"redis redis://h:1"}, ""},
		{"remote_url: rediss://u:p@h:1/2", Engine{},
			[]string{"redis-user u", "redis rediss://h:1/2"}, "add redis-password-file"},
		{"remote_url: redis-cluster://h:1,i:2", Engine{}, []string{"redis redis+cluster://h:1,i:2"}, ""},
		{"remote_url: redis-sentinel://h:1,i:2", Engine{}, []string{"redis redis+sentinel://h:1,i:2/redismaster"}, ""},
		{"remote_url: resp://h:1", Engine{}, []string{"redis redis://h:1"}, ""},
		{"remote_url: fs://host:0/a/b,/c", Engine{}, []string{"disk /a/b/ringcache"}, ""},
		{"remote_url: lm://localhost:1", Engine{}, []string{"lm 127.0.0.1:1"}, ""},
		{"remote_url: lm://h:1/x", Engine{},
			[]string{"lm 127.0.0.1:1", "lm-from h:1"}, "engines have to be pointed to lm://127.0.0.1:1"},
		{"remote_url: lm://h", Engine{}, nil, "is not lm://HOST:PORT"},
		{"remote_url: resp://h:1\nextra_config: {username: u, password: p}", Engine{},
			[]string{"redis-user u", "redis redis://h:1"}, "add redis-password-file"},
		{"remote_url: valkey://h:1\nextra_config: {valkey_mode: cluster, tls_enable: 'true', valkey_username: u}",
			Engine{}, []string{"redis-user u", "redis valkeys+cluster://h:1"}, ""},
		{"remote_url: redis://h:1?protocol=2", Engine{}, []string{"redis redis://h:1"}, "what is behind ? is left out"},
		{"remote_url: h:1", Engine{}, nil, "is no URL"},
		{"remote_url: s3://b", Engine{}, nil, "there is no level for s3://"},
		{"remote_serde: cachegen", Engine{}, nil, "KV is not compressed here"},
		{"save_unfull_chunk: true", Engine{}, nil, "only whole chunks are kept"},
		{"cache_policy: lfu", Engine{}, nil, ""},
		{"cache_policy: best", Engine{}, nil, "no engine starts with it"},
	} {
		got := load(t, c.file, "PYTHONHASHSEED=0").Translate(c.e)
		for _, w := range c.want {
			key, value, _ := strings.Cut(w, " ")
			require.Contains(t, got.Settings, Pair{key, value}, c.file)
		}
		if c.want == nil {
			require.NotContains(t, got.Settings, "disk", c.file)
			for _, p := range got.Settings {
				require.Contains(t, []string{"lmcache-chunk-size", "size", "lmcache"}, p.Key, c.file)
			}
		}
		if c.warn == "" {
			require.Empty(t, got.Warnings, c.file)
		} else {
			require.Len(t, got.Warnings, 1, c.file)
			require.Contains(t, got.Warnings[0], c.warn, c.file)
		}
	}
}

// What costs hits without a word: hashes that differ between processes.
func TestHashesThatDiffer(t *testing.T) {
	for _, c := range []struct {
		algorithm string
		environ   []string
		e         Engine
		want      string
	}{
		{"builtin", []string{}, Engine{}, "PYTHONHASHSEED is not set"},
		{"builtin", nil, Engine{}, "the environment of the engines is not known"},
		{"builtin", []string{"PYTHONHASHSEED=random"}, Engine{},
			`PYTHONHASHSEED is "random", and builtin needs a number`},
		{"builtin", []string{"PYTHONHASHSEED=0"}, Engine{}, ""},
		{"xxhash_cbor", []string{}, Engine{}, "PYTHONHASHSEED is not set"},
		{"sha256_cbor", []string{}, Engine{}, "vLLM 0.16.0 and older seed sha256_cbor at random"},
		{"sha256_cbor_64bit", []string{"PYTHONHASHSEED=5"}, Engine{}, ""},
		{"sha256", []string{"PYTHONHASHSEED=5"}, Engine{}, "hashes pickles"},
		{"md5", []string{"PYTHONHASHSEED=5"}, Engine{}, `"md5" is none of vLLM's`},
		{"sha256_cbor", []string{"PYTHONHASHSEED=x"}, Engine{BlockHash: "sha256"},
			"vLLM hashes its blocks with sha256, and LMCache its chunks with sha256_cbor"},
		{"sha256_cbor", []string{"PYTHONHASHSEED=x"}, Engine{BlockHash: "sha256_cbor"}, ""},
	} {
		got := load(t, "pre_caching_hash_algorithm: "+c.algorithm, c.environ...)
		got.known = c.environ != nil
		warnings := got.Translate(c.e).Warnings
		if c.want == "" {
			require.Empty(t, warnings, c.algorithm)
			continue
		}
		require.Len(t, warnings, 1, c.algorithm)
		require.Contains(t, warnings[0], c.want)
	}
}

func TestTranslateServer(t *testing.T) {
	for _, c := range []struct {
		args []string
		want []string
		warn string
	}{
		{nil,
			[]string{"size 8GiB", "lmcache tcp://127.0.0.1:5555", "http 127.0.0.1:8080", "lmcache-chunk-size 256"}, ""},
		{[]string{"--transport", "grpc", "--port", "7"}, []string{"lmcache grpc://127.0.0.1:7"}, ""},
		{[]string{"--host", "0.0.0.0"}, []string{"lmcache tcp://127.0.0.1:5555"}, "host is 0.0.0.0"},
		{[]string{"--shm-name", "kv"}, []string{"name kv"}, ""},
		{[]string{"--hash-algorithm", "builtin"}, nil, "what the old server has kept is not found again"},
		{[]string{"--http-host", "0.0.0.0", "--api-key-file", "/k"},
			[]string{"http 0.0.0.0:8080", "http-any true", "http-key-file /k"}, ""},
		{[]string{"--http-host", "0.0.0.0"}, []string{"http-any true"}, "http-key-file or http-client-ca only"},
		{[]string{"--isolated-ipc"}, []string{"lmcache-bodies true"}, "sends KV within messages"},
		{[]string{"--l2-adapter", `{"type": "fs", "base_path": "/srv"}`}, []string{"disk /srv/ringcache"}, ""},
		{[]string{"--l2-adapter", `{"type": "fs_native", "base_path": "/srv", "max_capacity_gb": 2}`},
			[]string{"disk /srv/ringcache", "disk-size 2GiB"}, ""},
		{[]string{"--l2-adapter", `{"type": "resp", "host": "h", "port": 6379, "password": "secret"}`},
			[]string{"redis redis://h:6379"}, "add redis-password-file"},
		{[]string{"--l2-adapter", `{"type": "valkey", "startup_nodes": "h:1,i:2", ` +
			`"cluster_mode": true, "tls_enable": true, "username": "u"}`},
			[]string{"redis-user u", "redis valkeys+cluster://h:1,i:2"}, ""},
		{[]string{"--coordinator-url", "http://c:9300", "--coordinator-event-reporting", "--instance-id", "a"},
			[]string{"lmcache-coordinator http://c:9300", "lmcache-instance a"}, ""},
		{[]string{"--coordinator-url", "http://c:9300"}, []string{"lmcache-coordinator http://c:9300"}, "all the same"},
		{[]string{"--coordinator-url", "http://u:p@c:9300"}, nil, "has a user"},
		{[]string{"--l2-adapter", `{"type": "s3"}`}, nil, `no level for the type "s3"`},
		{[]string{"--l2-adapter", `{`}, nil, "is no JSON object"},
	} {
		args := append([]string{"--supported-transfer-mode", "engine_driven"}, c.args...)
		got := server(t, nil, args...).Translate(Engine{})
		for _, w := range c.want {
			key, value, _ := strings.Cut(w, " ")
			require.Contains(t, got.Settings, Pair{key, value}, c.args)
		}
		if c.warn == "" {
			require.Empty(t, got.Warnings, c.args)
		} else {
			require.Contains(t, strings.Join(got.Warnings, "\n"), c.warn)
		}
	}
	require.Contains(t, server(t, nil).Translate(Engine{}).Warnings[0], "supported-transfer-mode is lmcache_driven")
	c, err := LoadServer("", []string{
		"--l1-manager", `{"type": "DRAM", "tag": "a", "size_gb": 2}`,
		"--l1-manager", `{"type": "DRAM", "tag": "b", "size_gb": 0.5}`,
	}, nil)
	require.NoError(t, err)
	require.Contains(t, c.Translate(Engine{}).Settings, Pair{"size", "2560MiB"})
}

// Passwords are in no line of the output, wherever they stand.
func TestNoPasswordIsShown(t *testing.T) {
	const secret = "hunter2"
	c := load(t, "remote_url: redis://user:"+secret+"@h:1\naudit_actual_remote_url: redis://:"+secret+"@h:2\n"+
		"extra_config: {redis_password: "+secret+"}\nruntime_plugin_locations: ['x://u:"+secret+"@y']\n")
	s := server(t, nil,
		"--l2-adapter", `{"type": "resp", "host": "h", "port": 1, "password": "`+secret+`"}`,
		"--coordinator-url", "http://u:"+secret+"@c")
	for _, c := range []*Config{c, s} {
		out, err := c.Translate(Engine{}).YAML(true)
		require.NoError(t, err)
		require.NotContains(t, string(out), secret)
	}
}

// TestNoPasswordIsShownInAnyForm: a long one, one with characters of URLs, and one where a URL has none.
func TestNoPasswordIsShownInAnyForm(t *testing.T) {
	const secret = "hunter2"
	for _, u := range []string{
		"redis://user:" + secret + strings.Repeat("x", 300) + "@h:1",
		"redis://:a@" + secret + "@h:1",
		"redis://:a/" + secret + "@h:1",
		"redis://:a " + secret + "@h:1",
		"redis-cluster://u:p@" + secret + "@h:1",
		"redis-sentinel://u:p@" + secret + "@h:1,i:2",
		"redis://h:1?password=" + secret,
		"user:" + secret + "@h:1",
		"x@" + secret + "://a@b",
		"s3://b?key=" + secret,
		"lm://u:" + secret + "@h:1",
		"fs://u:" + secret + "@h:1/a",
		"unix://:" + secret + "@/run/redis", "redis://:a?" + secret + "@h:1",
	} {
		// In JSON, so that YAML takes it as it is.
		quoted := strconv.Quote(u)
		c := load(t,
			"remote_url: "+quoted+"\nremote_config_url: "+quoted+"\nstorage_plugins: ["+quoted+"]\n",
			"PYTHONHASHSEED=0")
		out, err := c.Translate(Engine{}).YAML(true)
		require.NoError(t, err)
		require.NotContains(t, string(out), secret, u)
	}
	out, err := server(t, nil, "--runtime-plugin-config", `{"token": "`+secret+`"}`).Translate(Engine{}).YAML(true)
	require.NoError(t, err)
	require.NotContains(t, string(out), secret)
	require.Regexp(t, `# runtime-plugin-config +\{token\} `, string(out))
}

// TestLongNumbersAreRefusedInEveryBase: reading them would take time that grows with the square of their length.
func TestLongNumbersAreRefusedInEveryBase(t *testing.T) {
	for start, more := range map[string]string{"0x": "1", "0b": "1", "0": "1", "1": "1", "2": ":1"} {
		_, err := Sources{File: []byte("chunk_size: " + start + strings.Repeat(more, maxDigits)), Name: "f"}.Load()
		require.ErrorIs(t, err, fs.ErrInvalid, start)
		require.ErrorContains(t, err, "is no number", start)
	}
}

// The output is one YAML mapping, whatever is in the values.
func TestYAMLIsOneMapping(t *testing.T) {
	c := load(t, "app_id: \"a\\nsize: 5 \\u2028 # \\x1b[2J\"\nremote_url: 'redis://h:1'\n")
	out, err := c.Translate(Engine{}).YAML(false)
	require.NoError(t, err)
	var values map[string]any
	require.NoError(t, yaml.Unmarshal(out, &values), string(out))
	require.Equal(t, map[string]any{
		"lmcache-chunk-size": "256",
		"size":               "5GiB",
		"redis":              "redis://h:1",
		"lmcache":            []any{socket},
	}, values)
	require.Contains(t, string(out), "# app_id")
	require.NotContains(t, string(out), "\x1b")
	require.NotContains(t, string(out), "# cache_policy", "defaults are left out")
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte("chunk_size: 1\n<<: {a: [1, ~, 1:2.5]}"),
		"LMCACHE_EXTRA_CONFIG={}\nLMCACHE_X='a' 'b'",
		`{"lmcache.chunk_size": 5}`)
	f.Add([]byte("x: &x [*x]"), "LMCACHE_BLEND_THRESHOLDS='\\x", "{")
	f.Fuzz(func(t *testing.T, file []byte, environ, connector string) {
		c, err := Sources{File: file, Name: "f", Environ: strings.Split(environ, "\n"), Connector: connector}.Load()
		if err != nil {
			require.ErrorIs(t, err, fs.ErrInvalid)
			return
		}
		out, err := c.Translate(Engine{}).YAML(true)
		require.NoError(t, err)
		var values map[string]any
		require.NoError(t, yaml.Unmarshal(out, &values), string(out))
	})
}

func FuzzServer(f *testing.F) {
	f.Add("--l1-size-gb 1 --eviction-policy LRU --l2-adapter {} --port=5 --no-l1-use-lazy", "LMCACHE_COORDINATOR_URL=x")
	f.Add("--l1-manager {\"size_gb\":1e400} --host", "")
	f.Fuzz(func(t *testing.T, args, environ string) {
		c, err := LoadServer("", strings.Fields(args), strings.Split(environ, "\n"))
		if err != nil {
			require.ErrorIs(t, err, fs.ErrInvalid)
			return
		}
		_, err = c.Translate(Engine{}).YAML(true)
		require.NoError(t, err)
	})
}

// TestAsyncLoadingIsExplained: an operator who has asked for it sees that loads begin with look-ups here, too, and which
// part of LMCache's is not there.
func TestAsyncLoadingIsExplained(t *testing.T) {
	rows := load(t, "enable_async_loading: true\n").Translate(Engine{}).Rows
	at := slices.IndexFunc(rows, func(r Row) bool { return r.Option == "enable_async_loading" })
	require.Equal(t, "true", rows[at].Value)
	require.False(t, rows[at].Default)
	require.Contains(t, rows[at].Here, "always so")
	require.Contains(t, rows[at].Here, "sockets for it, between scheduler and worker, are not served")
}
