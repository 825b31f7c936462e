package config

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ringcache/ringcache/kv"
)

// Engine is what LMCache's configuration does not say, and the daemon needs.
type Engine struct {
	// Workers is the number of processes of an engine, of which each has memory of max_local_cpu_size. 0 is
	// one.
	Workers int
	// BlockSize is vLLM's --block-size. 0 is vLLM's default, 16.
	BlockSize int
	// BlockHash is vLLM's --prefix-caching-hash-algo, if it is known.
	BlockHash string
}

// Translation is what a configuration of LMCache means for ringcache serve.
type Translation struct {
	// Settings are keys of the daemon with their values.
	Settings []Pair
	// Rows say of each option what became of it.
	Rows []Row
	// Warnings are about what costs hits, or is not there.
	Warnings []string
}

// Pair is a setting of the daemon. Lists have commas between their elements.
type Pair struct{ Key, Value string }

// Row is one option of LMCache.
type Row struct {
	Option string
	// Value is without passwords, and of what may contain some it has only the names.
	Value string
	// Here is the setting of the daemon, or why there is none.
	Here string
	// Default says that the option was not given.
	Default bool
}

// socket is where engines find the daemon, unless the configuration says it.
const socket = "grpc+unix:///run/ringcache/kv.sock"

// subfolder is where the daemon keeps its objects in a folder of LMCache's, whose files it can't use.
const subfolder = "ringcache"

type translator struct {
	*Translation
	c *Config
	e Engine
}

// Translate says what the configuration means for ringcache serve.
func (c *Config) Translate(e Engine) *Translation {
	t := translator{&Translation{}, c, e}
	for _, s := range c.settings {
		here := s.without
		if here == "" {
			if translate := translations[s.Name]; translate != nil {
				here = translate(t, s)
			}
		}
		t.Rows = append(t.Rows, Row{s.Name, shown(s.Option, s.Value), here, s.Origin == ""})
	}
	for _, s := range c.encoder {
		t.Rows = append(t.Rows, Row{"ec_" + s.Name, shown(s.Option, s.Value), "outputs of encoders are in the same memory and on the same disk as KV", false})
	}
	for _, s := range c.deprecated {
		t.warn("%s (%s) is the old name of %s", s.Value, s.Origin, s.Name)
	}
	if c.server {
		t.listen()
	} else {
		t.set("lmcache", socket)
		t.hashes()
	}
	return t.Translation
}

func (t translator) warn(format string, args ...any) {
	t.Warnings = append(t.Warnings, fmt.Sprintf(format, args...))
}

// set makes a setting, and returns its line.
func (t translator) set(key, value string) string {
	t.Settings = append(t.Settings, Pair{key, value})
	return key + ": " + value
}

func (t translator) has(key string) bool {
	return slices.ContainsFunc(t.Settings, func(p Pair) bool { return p.Key == key })
}

// translations are those of the options that mean something. They run in the order of the options.
var translations = map[string]func(t translator, s Setting) string{
	"chunk_size":                 translator.chunk,
	"local_cpu":                  translator.localCPU,
	"max_local_cpu_size":         translator.memory,
	"local_disk":                 translator.disk,
	"max_local_disk_size":        func(t translator, s Setting) string { return t.diskSize(s) },
	"remote_url":                 translator.remote,
	"remote_serde":               translator.serde,
	"pre_caching_hash_algorithm": func(translator, Setting) string { return "chunks are hashed by blake3, which has no seed" },
	"save_unfull_chunk":          translator.tail,
	"cache_policy":               translator.policy,
	"extra_config":               func(translator, Setting) string { return "settings of parts of LMCache that are not there" },

	"transport":               func(translator, Setting) string { return "see port" },
	"host":                    func(translator, Setting) string { return "see port" },
	"port":                    func(t translator, _ Setting) string { return "lmcache: " + t.address() },
	"chunk-size":              translator.chunk,
	"l1-size-gb":              translator.memory,
	"l1-use-lazy":             func(translator, Setting) string { return atOnce },
	"l1-manager":              translator.managers,
	"shm-name":                translator.segment,
	"hash-algorithm":          translator.serverHash,
	"supported-transfer-mode": translator.mode,
	"isolated-ipc":            translator.isolated,
	"eviction-policy":         translator.policy,
	"l2-adapter":              translator.adapters,
	"http-host":               func(translator, Setting) string { return "see http-port" },
	"http-port":               translator.http,
	"prometheus-port":         func(translator, Setting) string { return "/metrics is at the address of http" },
	"api-key-file":            translator.keys,
}

// chunk is of both: LMCache's chunk.
func (t translator) chunk(s Setting) string {
	n, ok := s.Value.(int64)
	if !ok || n < 1 {
		t.warn("%s is %s, and no engine starts with it", s.Name, shown(s.Option, s.Value))
		return "not a size"
	}
	if block := int64(cmp.Or(t.e.BlockSize, 16)); n%block != 0 {
		t.warn("%s is %d, and not a multiple of vLLM's block size, %d: vLLM's hits end at blocks, so that what is in a block with the end of a chunk is computed again, and engines of LMCache 0.5.6 do not start with a daemon of this chunk", s.Name, n, block)
	}
	return t.set("lmcache-chunk-size", strconv.FormatInt(n, 10))
}

func (t translator) localCPU(s Setting) string {
	if s.Value != true {
		t.warn("local_cpu is off: LMCache's memory is a buffer then, and here it is always a level")
	}
	return "memory is always a level"
}

// memory is max_local_cpu_size, which each worker has, or the server's l1-size-gb.
func (t translator) memory(s Setting) string {
	workers := 1
	if !s.Server {
		workers = max(t.e.Workers, 1)
	}
	text, ok := size(s.Value, workers)
	if !ok {
		if s.Server && s.Value == nil {
			return "see l1-manager"
		}
		t.warn("%s is %s: the daemon has the size of its default", s.Name, shown(s.Option, s.Value))
		return "not a size of memory"
	}
	line := t.set("size", text)
	if workers > 1 {
		line += fmt.Sprintf(", of %d workers", workers)
	}
	return line
}

func (t translator) disk(s Setting) string {
	folders, _ := s.Value.(string)
	all := fields(folders)
	if len(all) == 0 {
		return "no disk"
	}
	if f, ok := t.c.at("max_local_disk_size").Value.(float64); !ok || f <= 0 {
		t.warn("local_disk is set, and max_local_disk_size is not: LMCache has no disk then, without a word, and the daemon gets none")
		return "no disk, since max_local_disk_size is not set"
	}
	if len(all) > 1 {
		t.warn("local_disk has %d folders, and the daemon has one: the first is taken; for several disks make one file system of them", len(all))
	}
	return t.folder(all[0], "local_disk")
}

// folder makes the disk of the daemon in a folder of LMCache's.
func (t translator) folder(folder, option string) string {
	if !path.IsAbs(folder) {
		t.warn("%s: %s is relative to where the engine was started; the daemon takes an absolute path", option, folder)
		return "no disk, since its path is relative"
	}
	return t.set("disk", path.Join(folder, subfolder)) + ", beside the files of LMCache, which are not read"
}

func (t translator) diskSize(s Setting) string {
	if !t.has("disk") {
		return "no disk"
	}
	if text, ok := size(s.Value, 1); ok {
		return t.set("disk-size", text)
	}
	return "no bound but the disk's"
}

func (t translator) remote(s Setting) string {
	u, ok := s.Value.(string)
	if !ok {
		return "no remote level"
	}
	return t.url(u, s.Name)
}

// schemes are what URLs begin with.
var schemes = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://`)

// url makes a level of an address of LMCache's.
func (t translator) url(u, option string) string {
	scheme := strings.TrimSuffix(schemes.FindString(u), "://")
	if scheme == "" {
		t.warn("%s is no URL, and no engine starts with it", option)
		return "no address"
	}
	user, password, rest := credentials(scheme, u[len(scheme)+len("://"):])
	rest, query, _ := strings.Cut(rest, "?")
	if strings.Contains(rest, "@") { // a password may stand in front of it
		t.warn("%s has an @ behind its host: write that of a password as %%40", option)
		return "no address"
	}
	switch scheme {
	case "redis", "rediss", "unix":
	case "valkey":
		user, password = t.extra("valkey_username"), t.extra("valkey_password")
		if b, _, _ := toBool(t.extra("tls_enable")); b == true {
			scheme += "s"
		}
		if t.extra("valkey_mode") == "cluster" {
			scheme += "+cluster"
		}
	case "resp":
		scheme = "redis"
		user = cmp.Or(t.extra("username"), t.c.environ["LMCACHE_RESP_USERNAME"])
		password = cmp.Or(t.extra("password"), t.c.environ["LMCACHE_RESP_PASSWORD"])
	case "redis-cluster":
		scheme = "redis+cluster"
	case "redis-sentinel":
		scheme, rest = "redis+sentinel", rest+"/"+cmp.Or(t.c.environ["REDIS_SERVICE_NAME"], "redismaster")
	case "fs":
		_, folder, _ := strings.Cut(rest, "/")
		if t.has("disk") {
			t.warn("%s: the daemon has one disk, and local_disk is it already", option)
			return "no second disk"
		}
		folder, _, _ = strings.Cut(folder, ",")
		return t.folder("/"+folder, option)
	case "lm":
		return t.lm(rest, option)
	case "mock", "blackhole", "audit":
		return "no level: it keeps nothing"
	default:
		t.warn("%s: there is no level for %s://", option, scheme)
		return "there is no such level"
	}
	if t.has("redis") {
		t.warn("%s: the daemon has one Redis; this one is not used", option)
		return "no second Redis"
	}
	if query != "" {
		t.warn("%s: what is behind ? is left out", option)
	}
	t.login(user, password, option)
	return t.set("redis", scheme+"://"+rest) + ", under keys of its own: those of LMCache are not read; with resp the daemon takes that server's place"
}

// credentials takes user and password off what is behind the scheme of a URL. LMCache's own parser of several hosts looks
// for the first @, and Python's for the last one in front of a path.
func credentials(scheme, text string) (user, password, rest string) {
	at := strings.Index(text, "@")
	if scheme != "redis-cluster" && scheme != "redis-sentinel" {
		host := text
		if end := strings.IndexAny(text, "/?#"); end >= 0 {
			host = text[:end]
		}
		at = strings.LastIndex(host, "@")
	}
	if at < 0 {
		return "", "", text
	}
	user, password, _ = strings.Cut(text[:at], ":")
	return user, password, text[at+1:]
}

// extra is a text of extra_config, "" if there is none.
func (t translator) extra(name string) string {
	all, _ := t.c.at("extra_config").Value.(map[string]any)
	if v := all[name]; v != nil {
		return text(v)
	}
	return ""
}

// lm lets the daemon take the place of a server of lm://. What a server on another machine has moves along by lm-from; one
// on this machine has to end first, and with it all that it had.
func (t translator) lm(rest, option string) string {
	address, _, _ := strings.Cut(rest, "/")
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" || port == "" {
		t.warn("%s is not lm://HOST:PORT, and no engine starts with it", option)
		return "no address"
	}
	ours := net.JoinHostPort("127.0.0.1", port)
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback() && !ip.IsUnspecified()) {
		t.set("lm-from", address)
		t.warn("%s: engines have to be pointed to lm://%s; for engines on other machines, lm is an address of this one, with values-any; when misses do not come from %s any more, remove lm-from", option, ours, address)
	}
	return t.set("lm", ours) + ", in the place of this server"
}

func (t translator) login(user, password, option string) {
	if user != "" {
		t.set("redis-user", user)
	}
	if password != "" {
		t.warn("%s has a password: write it to a file that the daemon alone reads, and add redis-password-file: FILE", option)
	}
}

func (t translator) serde(s Setting) string {
	if s.Value != "naive" && s.Value != nil {
		t.warn("remote_serde is %s: KV is not compressed here, and takes its whole size", shown(s.Option, s.Value))
	}
	return "KV is kept as engines give it"
}

func (t translator) tail(s Setting) string {
	if s.Value == true {
		t.warn("save_unfull_chunk is on: here only whole chunks are kept, and the tokens behind the last one are computed again; a smaller chunk_size makes them fewer")
	}
	return "whole chunks only"
}

func (t translator) policy(s Setting) string {
	name, ok := s.Value.(string)
	if !s.Server && (!ok || !slices.Contains([]string{"LRU", "LFU", "FIFO", "MRU"}, strings.ToUpper(name))) {
		t.warn("cache_policy is %s, and no engine starts with it", shown(s.Option, s.Value))
	}
	return evicts
}

// hashes warns of what an engine's own hashes cost.
func (t translator) hashes() {
	name, _ := t.c.at("pre_caching_hash_algorithm").Value.(string)
	algorithm := kv.Algorithm(name)
	switch name {
	case "sha256_cbor_64bit":
		algorithm = kv.SHA256CBOR
	case "sha256", "xxhash":
		t.warn("pre_caching_hash_algorithm %s hashes pickles, which differ between releases of Python: engines with other ones find nothing of each other; use %s", name, kv.SHA256CBOR)
	case string(kv.Builtin), string(kv.SHA256CBOR), string(kv.XXHashCBOR):
	default:
		t.warn("pre_caching_hash_algorithm %q is none of vLLM's: LMCache takes %s in its place, with a line in the log alone", name, kv.Builtin)
		algorithm = kv.Builtin
	}
	if t.e.BlockHash != "" && t.e.BlockHash != name {
		t.warn("vLLM hashes its blocks with %s, and LMCache its chunks with %s: who compares both, such as a router, finds no hit; set both to %s", t.e.BlockHash, name, kv.SHA256CBOR)
	}
	seed, set := t.c.environ["PYTHONHASHSEED"]
	err := kv.Scheme{Algorithm: algorithm, Seed: seed, Legacy: true}.Validate()
	switch {
	case name == "sha256" || name == "xxhash":
	case !t.c.known:
		t.warn("the environment of the engines is not known: with pre_caching_hash_algorithm %s they find nothing of each other's unless PYTHONHASHSEED is one number for all", cmp.Or(name, string(algorithm)))
	case err != nil && set:
		t.warn("PYTHONHASHSEED is %q, and %s needs a number up to 4294967295: engines find nothing of each other's", short(seed), algorithm)
	case err != nil:
		t.warn("PYTHONHASHSEED is not set, and %s is random in each process then: an engine finds nothing of another one's, and after a restart nothing of its own; set it to one number for all", algorithm)
	case !set:
		t.warn("PYTHONHASHSEED is not set: vLLM 0.16.0 and older seed %s at random then, so that engines find nothing of each other's; 0.31.0 has a seed of its own", algorithm)
	}
}

// address is where the server listens.
func (t translator) address() string {
	scheme := "tcp"
	if t.c.at("transport").Value == "grpc" {
		scheme = "grpc"
	}
	return scheme + "://127.0.0.1:" + strconv.FormatInt(t.c.at("port").Value.(int64), 10)
}

// listen takes the address of the server.
func (t translator) listen() {
	host := t.c.at("host").Value.(string)
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		t.warn("host is %s: KV is served on this machine only, and the address is 127.0.0.1", host)
	}
	t.set("lmcache", t.address())
}

func (t translator) segment(s Setting) string {
	if s.Value == "" {
		return "the name of the segment is that of name"
	}
	return t.set("name", strings.TrimPrefix(s.Value.(string), "/"))
}

func (t translator) serverHash(s Setting) string {
	if s.Value != string(kv.BLAKE3) {
		t.warn("hash-algorithm is %s, and here it is %s: what the old server has kept is not found again", shown(s.Option, s.Value), kv.BLAKE3)
	}
	return "chunks are hashed by blake3"
}

func (t translator) mode(s Setting) string {
	if s.Value == "lmcache_driven" {
		t.warn("supported-transfer-mode is lmcache_driven: here engines transfer KV themselves, with lmcache.mp.mp_transfer_mode engine_driven; without that nothing is stored")
	}
	return "engine_driven only"
}

func (t translator) isolated(s Setting) string {
	if s.Value == true {
		t.warn("isolated-ipc is on: engines that can't map the daemon's memory need LMCache 0.5.7, which sends KV within messages")
		return t.set("lmcache-bodies", "true")
	}
	return "engines map the segment"
}

func (t translator) managers(s Setting) string {
	total := 0.0
	for _, raw := range s.Value.([]string) {
		v, _ := parseJSON(raw)
		d, _ := v.(dict)
		gb, err := toFloat(d.get("size_gb"))
		if err != nil || d.get("type") != "DRAM" {
			t.warn("l1-manager: of these only DRAM with size_gb is here")
			continue
		}
		total += gb
	}
	if text, ok := size(total, 1); ok {
		return t.set("size", text)
	}
	return "see l1-size-gb"
}

// adapters makes levels of the L2 adapters.
func (t translator) adapters(s Setting) string {
	if len(s.Value.([]string)) == 0 {
		return "no lower level"
	}
	var lines []string
	for i, raw := range s.Value.([]string) {
		option := fmt.Sprintf("l2-adapter %d", i+1)
		v, err := parseJSON(raw)
		d, ok := v.(dict)
		if err != nil || !ok {
			t.warn("%s is no JSON object, and lmcache server does not start with it", option)
			continue
		}
		line := t.adapter(d, option)
		if d.get("serde") != nil {
			t.warn("%s: KV is not compressed here", option)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "; ")
}

// adapter makes a level of one of them.
func (t translator) adapter(d dict, option string) string {
	word := func(name string) string { s, _ := d.get(name).(string); return s }
	switch kind := word("type"); kind {
	case "fs", "fs_native":
		if t.has("disk") {
			t.warn("%s: the daemon has one disk; this one is not used", option)
			return "no second disk"
		}
		line := t.folder(word("base_path"), option)
		if kind == "fs" {
			line += " (ringcache migrate copies them)"
		}
		if text, ok := size(d.get("max_capacity_gb"), 1); ok && t.has("disk") {
			line += ", " + t.set("disk-size", text)
		}
		return line
	case "resp":
		port, _ := d.get("port").(int64)
		return t.server("redis", net.JoinHostPort(word("host"), strconv.FormatInt(port, 10)), d, option)
	case "valkey":
		scheme := "valkey"
		if truth(d.get("tls_enable")) {
			scheme = "valkeys"
		}
		if truth(d.get("cluster_mode")) {
			scheme += "+cluster"
		}
		return t.server(scheme, word("startup_nodes"), d, option)
	case "mock", "fault_inject":
		return kind + ": it keeps nothing"
	default:
		t.warn("%s: there is no level for the type %q", option, kind)
		return kind + ": not there"
	}
}

func (t translator) server(scheme, hosts string, d dict, option string) string {
	if t.has("redis") {
		t.warn("%s: the daemon has one Redis; this one is not used", option)
		return "no second Redis"
	}
	user, _ := d.get("username").(string)
	password, _ := d.get("password").(string)
	t.login(user, password, option)
	return t.set("redis", scheme+"://"+hosts) + ", under keys of its own"
}

func (t translator) http(s Setting) string {
	host, _ := t.c.at("http-host").Value.(string)
	if host == "localhost" {
		host = "127.0.0.1"
	}
	line := t.set("http", net.JoinHostPort(host, strconv.FormatInt(s.Value.(int64), 10)))
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		t.set("http-any", "true")
		if !t.hasKeys() {
			t.warn("http-host is %s, which other machines reach: the daemon takes that with http-key-file alone", host)
		}
	}
	return line
}

func (t translator) hasKeys() bool {
	return slices.ContainsFunc(t.c.settings, func(s Setting) bool { return s.Name == "api-key-file" && truthOfTexts(s.Value) })
}

func truthOfTexts(v any) bool { l, _ := v.([]string); return len(l) > 0 }

func (t translator) keys(s Setting) string {
	if files := s.Value.([]string); len(files) > 0 {
		return t.set("http-key-file", strings.Join(files, ","))
	}
	return "no key; LMCACHE_API_KEY is read by the daemon, too"
}

// size is a number of GiB as the daemon takes it, in whole MiB.
func size(v any, times int) (text string, ok bool) {
	var gb float64
	switch v := v.(type) {
	case float64:
		gb = v
	case int64:
		gb = float64(v)
	}
	mb := math.Ceil(gb * 1024 * float64(times))
	if !(mb > 0) || mb > 1<<33 { // 8 PiB
		return "", false
	}
	if n := int64(mb); n%1024 == 0 {
		return strconv.FormatInt(n/1024, 10) + "GiB", true
	}
	return strconv.FormatInt(int64(mb), 10) + "MiB", true
}

// masked is a text without what may be a login or the parameters of a URL.
func masked(s string) string {
	start := len(schemes.FindString(s))
	if at := strings.LastIndex(s, "@"); at >= 0 {
		s = s[:start] + "***" + s[at:]
	}
	if i := strings.Index(s[start:], "?"); start > 0 && i >= 0 {
		s = s[:start+i] + "?***"
	}
	return s
}

// shown is a value for people, without what may be secret.
func shown(o Option, v any) string {
	switch v := v.(type) {
	case nil:
		return "none"
	case bool:
		return strconv.FormatBool(v)
	case string:
		if o.Name == "runtime-plugin-config" {
			parsed, _ := parseJSON(v)
			d, _ := parsed.(dict)
			return shown(o, published(d))
		}
		return strconv.Quote(short(masked(v)))
	case map[string]any:
		return "{" + strings.Join(slices.Sorted(maps.Keys(v)), ", ") + "}"
	case []string:
		if o.Name == "l2-adapter" || o.Name == "l1-manager" {
			return fmt.Sprintf("%d of them", len(v))
		}
		all := make([]string, len(v))
		for i := range v {
			all[i] = masked(v[i])
		}
		return short(fmt.Sprintf("%q", all))
	}
	return short(fmt.Sprint(v))
}
