package config

import (
	"cmp"
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
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
		t.Rows = append(t.Rows, Row{
			"ec_" + s.Name, shown(s.Option, s.Value),
			"outputs of encoders are in the same memory and on the same disk as KV", false,
		})
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
	"max_local_disk_size":        translator.diskSize,
	"remote_url":                 translator.remote,
	"remote_serde":               translator.serde,
	"pre_caching_hash_algorithm": says("chunks are hashed by blake3, which has no seed"),
	"save_unfull_chunk":          translator.tail,
	"cache_policy":               translator.policy,
	"extra_config":               says("settings of parts of LMCache that are not there"),

	"transport":               says("see port"),
	"host":                    says("see port"),
	"port":                    func(t translator, _ Setting) string { return "lmcache: " + t.address() },
	"chunk-size":              translator.chunk,
	"l1-size-gb":              translator.memory,
	"l1-use-lazy":             says(atOnce),
	"l1-manager":              translator.managers,
	"shm-name":                translator.segment,
	"hash-algorithm":          translator.serverHash,
	"supported-transfer-mode": translator.mode,
	"isolated-ipc":            translator.isolated,
	"eviction-policy":         translator.policy,
	"l2-adapter":              translator.adapters,
	"http-host":               says("see http-port"),
	"http-port":               translator.http,
	"prometheus-port":         says("/metrics is at the address of http"),
	"api-key-file":            translator.keys,
	"instance-id":             translator.instance,
	"coordinator-url":         translator.coordinator,
}

// says is the translation of an option that has the same meaning whatever its value is.
func says(text string) func(translator, Setting) string {
	return func(translator, Setting) string { return text }
}

// chunk is of both: LMCache's chunk.
func (t translator) chunk(s Setting) string {
	n, ok := s.Value.(int64)
	if !ok || n < 1 {
		t.warn("%s is %s, and no engine starts with it", s.Name, shown(s.Option, s.Value))
		return "not a size"
	}
	if block := int64(cmp.Or(t.e.BlockSize, 16)); n%block != 0 {
		t.warn(
			"%s is %d, and not a multiple of vLLM's block size, %d: "+
				"vLLM's hits end at blocks, so that what is in a block with the end of a chunk is computed again, "+
				"and engines of LMCache 0.5.6 do not start with a daemon of this chunk",
			s.Name, n, block)
	}
	return t.set("lmcache-chunk-size", strconv.FormatInt(n, 10))
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

// folder makes the disk of the daemon in a folder of LMCache's.
func (t translator) folder(folder, option string) string {
	if !path.IsAbs(folder) {
		t.warn("%s: %s is relative to where the engine was started; the daemon takes an absolute path", option, folder)
		return "no disk, since its path is relative"
	}
	return t.set("disk", path.Join(folder, subfolder)) + ", beside the files of LMCache, which are not read"
}

func (t translator) policy(s Setting) string {
	name, ok := s.Value.(string)
	if !s.Server && (!ok || !slices.Contains([]string{"LRU", "LFU", "FIFO", "MRU"}, strings.ToUpper(name))) {
		t.warn("cache_policy is %s, and no engine starts with it", shown(s.Option, s.Value))
	}
	return evicts
}

// size is a number of GiB, times another number, as the daemon takes it: in whole MiB.
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
	n := int64(mb)
	if n%1024 == 0 {
		return strconv.FormatInt(n/1024, 10) + "GiB", true
	}
	return strconv.FormatInt(n, 10) + "MiB", true
}
