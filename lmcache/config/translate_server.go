package config

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/ringcache/ringcache/kv"
)

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
		t.warn(
			"hash-algorithm is %s, and here it is %s: what the old server has kept is not found again",
			shown(s.Option, s.Value), kv.BLAKE3)
	}
	return "chunks are hashed by blake3"
}

func (t translator) mode(s Setting) string {
	if s.Value == "lmcache_driven" {
		t.warn(
			"supported-transfer-mode is lmcache_driven: here engines transfer KV themselves, " +
				"with lmcache.mp.mp_transfer_mode engine_driven; without that nothing is stored")
	}
	return "engine_driven only"
}

func (t translator) isolated(s Setting) string {
	if s.Value == true {
		t.warn(
			"isolated-ipc is on: engines that can't map the daemon's memory need LMCache 0.5.7, " +
				"which sends KV within messages")
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
		return t.redis("redis", net.JoinHostPort(word("host"), strconv.FormatInt(port, 10)), d, option)
	case "valkey":
		scheme := "valkey"
		if truth(d.get("tls_enable")) {
			scheme = "valkeys"
		}
		if truth(d.get("cluster_mode")) {
			scheme += "+cluster"
		}
		return t.redis(scheme, word("startup_nodes"), d, option)
	case "mock", "fault_inject":
		return kind + ": it keeps nothing"
	default:
		t.warn("%s: there is no level for the type %q", option, kind)
		return kind + ": not there"
	}
}

// redis makes the daemon's Redis of an adapter.
func (t translator) redis(scheme, hosts string, d dict, option string) string {
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
			t.warn("http-host is %s, which other machines reach: the daemon takes that with http-key-file or http-client-ca only", host)
		}
	}
	return line
}

func (t translator) hasKeys() bool {
	return slices.ContainsFunc(t.c.settings, func(s Setting) bool {
		files, _ := s.Value.([]string)
		return s.Name == "api-key-file" && len(files) > 0
	})
}

func (t translator) keys(s Setting) string {
	if files := s.Value.([]string); len(files) > 0 {
		return t.set("http-key-file", strings.Join(files, ","))
	}
	return "no key; LMCACHE_API_KEY is read by the daemon, too"
}

// instance takes the server's name at the coordinator. Without one, LMCache's has another name at each start.
func (t translator) instance(s Setting) string {
	name, _ := s.Value.(string)
	if name == "" {
		return "the name at the coordinator is made of the host's and the segment's"
	}
	return t.set("lmcache-instance", name)
}

func (t translator) coordinator(s Setting) string {
	u, _ := s.Value.(string)
	if u == "" {
		return "no coordinator is told"
	}
	if parsed, err := url.Parse(u); err != nil || parsed.User != nil {
		t.warn("coordinator-url is no URL, or has a user: the daemon sends none")
		return "no coordinator is told"
	}
	if t.c.at("coordinator-event-reporting").Value != true {
		t.warn("coordinator-event-reporting is off: the daemon tells its coordinator what is in memory all the same")
	}
	return t.set("lmcache-coordinator", u)
}
