package config

import (
	"cmp"
	"net"
	"regexp"
	"strings"
)

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
	return t.set("redis", scheme+"://"+rest) +
		", under keys of its own: those of LMCache are not read; " +
		"with resp the daemon takes that server's place"
}

// credentials takes user and password off what is behind the scheme of a URL. LMCache's own parser of several
// hosts looks for the first @, and Python's for the last one in front of a path.
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

// lm lets the daemon take the place of a server of lm://. What a server on another machine has moves along by
// lm-from; one on this machine has to end first, and with it all that it had.
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
		t.warn(
			"%s: engines have to be pointed to lm://%s; for engines on other machines, lm is an address of this one, "+
				"with values-any; when misses do not come from %s any more, remove lm-from",
			option, ours, address)
	}
	return t.set("lm", ours) + ", in the place of this server"
}

func (t translator) login(user, password, option string) {
	if user != "" {
		t.set("redis-user", user)
	}
	if password != "" {
		t.warn(
			"%s has a password: write it to a file that the daemon alone reads, and add redis-password-file: FILE",
			option)
	}
}
