package daemon

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ringcache/ringcache/daemon/internal/sessionless"
	"github.com/ringcache/ringcache/internal/location"
	"github.com/ringcache/ringcache/internal/passwordfile"
	"github.com/ringcache/ringcache/lmcache/coordinator"
)

// Validate reports everything that is wrong, as a [*ConfigError]. It opens nothing but the files of
// passwords, keys and certificates.
func (c Config) Validate() error {
	var texts []string
	for _, p := range c.problems() {
		texts = append(texts, p.key+": "+p.text)
	}
	if len(texts) > 0 {
		return &ConfigError{texts}
	}
	return nil
}

// maxSocket is the longest path of a unix socket on Linux.
const maxSocket = 107

// maxLMCacheEngine is the most bytes that a layout of package kv takes.
const maxLMCacheEngine = 255

// longestTime is the most of every time.
const longestTime = 720 * time.Hour

// problems are what is wrong, by setting. Each text contains what to do.
func (c Config) problems() []problem {
	var all problems
	wrong := all.add
	oneOf := func(key, value string, values ...string) {
		if !slices.Contains(values, value) {
			wrong(key, "%q is not one of %s", value, strings.Join(values, ", "))
		}
	}
	if !filepath.IsAbs(c.Socket) || len(c.Socket) > maxSocket {
		wrong("socket", "%q must be an absolute path of at most %d bytes", c.Socket, maxSocket)
	}
	memoryProblems(c, &all)
	for _, x := range c.lower() {
		x.problems(&all)
		oneOf(x.key+"-write", x.write, "back", "around")
	}
	taken := map[string]bool{c.Socket: true}
	for _, u := range c.LMCache {
		a, err := parseLMCache(u)
		switch {
		case err != nil:
			wrong("lmcache", "%v", err)
		case taken[a.address]:
			wrong("lmcache", "%q is given twice, or is the socket", u)
		}
		taken[a.address] = true
	}
	valueProblems(c, &all, taken)
	if len(c.LMCacheEngine) > maxLMCacheEngine || !utf8.ValidString(c.LMCacheEngine) {
		wrong("lmcache-engine", "it has %d bytes, and %d of UTF-8 are the most", len(c.LMCacheEngine), maxLMCacheEngine)
	}
	if c.LMCacheCoordinator != "" {
		if _, err := c.reporter(coordinator.ReporterOptions{}); err != nil {
			wrong("lmcache-coordinator", "%v", err)
		}
		if len(c.LMCache) == 0 || c.HTTP == httpOff {
			wrong("lmcache-coordinator", "it is told of the KV of lmcache, and of the address of http: both are needed")
		}
	}
	if c.LMCacheChunkSize < 1 || c.LMCacheChunkSize > 1<<16 {
		wrong("lmcache-chunk-size", "%d is not between 1 and %d", c.LMCacheChunkSize, 1<<16)
	}
	if c.HTTP != httpOff {
		host, port, err := net.SplitHostPort(c.HTTP)
		n, portErr := strconv.ParseUint(port, 10, 16)
		switch {
		case err != nil || portErr != nil:
			wrong("http", "%q is not HOST:PORT, such as 127.0.0.1:9401, and not off", c.HTTP)
		case !loopback(c.HTTP) && !c.HTTPAny:
			wrong("http", "%q is reached from other machines, without a password: use 127.0.0.1:%d, or set http-any if that is meant", c.HTTP, n)
		case host != "" && host != "localhost" && net.ParseIP(host) == nil:
			wrong("http", "the host %q is no IP address: write the address", host)
		}
	}
	switch keys, err := httpKeys(c); {
	case err != nil:
		wrong("http-key-file", "%v", err)
	case len(keys) > maxKeys:
		wrong("http-key-file", "%d keys are given, and %d are the most", len(keys), maxKeys)
	case len(keys) == 0 && c.HTTPClientCA == "" && len(c.LMCache) > 0 && c.HTTP != httpOff && !loopback(c.HTTP):
		wrong("http-key-file", "other machines could clear the cache by HTTP: give a file with a key, or http-client-ca, or listen at 127.0.0.1 only")
	}
	if _, p := c.httpTLS(); p != nil {
		all = append(all, *p)
	}
	lookProblems(c, &all)
	for key, d := range map[string]time.Duration{"grace": c.Grace, "drain": c.Drain, "max-lease": c.MaxLease,
		"default-lease": c.DefaultLease} {
		if d < 0 || d == 0 && key != "drain" || d > longestTime {
			wrong(key, "%s is not a time up to %s, such as 30s", formatTime(d), formatTime(longestTime))
		}
	}
	for key, n := range map[string]int{"max-connections": c.MaxConnections, "max-sessions": c.MaxSessions,
		"max-session-leases": c.MaxSessionLeases} {
		if n <= 0 || n > 1<<20 {
			wrong(key, "%d is not between 1 and %d", n, 1<<20)
		}
	}
	if c.MaxHeld < 0 {
		wrong("max-held", "is negative: 0 is half of the segment")
	}
	if c.DefaultLease > c.MaxLease {
		wrong("default-lease", "%s is longer than max-lease, %s", formatTime(c.DefaultLease), formatTime(c.MaxLease))
	}
	oneOf("log-level", c.LogLevel, "debug", "info", "warn", "error")
	oneOf("log-format", c.LogFormat, "logfmt", "json")
	slices.SortStableFunc(all, func(a, b problem) int { return order(a.key) - order(b.key) })
	return all
}

// lookProblems adds what is wrong with traces and profiles.
func lookProblems(c Config, all *problems) {
	if c.OTLP != "" {
		u, err := url.Parse(c.OTLP)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil ||
			strings.Trim(u.Path, "/")+u.RawQuery+u.Fragment != "" {
			all.add("otlp", "it must be http://HOST:PORT or https://HOST:PORT; /v1/traces is added, and what a collector wants to be told belongs into OTEL_EXPORTER_OTLP_HEADERS")
		}
	}
	if c.OTLPOneIn < 1 {
		all.add("otlp-one-in", "%d is less than 1, which traces each request", c.OTLPOneIn)
	}
	if c.PProf == "" {
		return
	}
	_, port, err := net.SplitHostPort(c.PProf)
	_, portErr := strconv.ParseUint(port, 10, 16)
	switch {
	case err != nil || portErr != nil:
		all.add("pprof", "%q is not HOST:PORT, such as 127.0.0.1:6060", c.PProf)
	case !loopback(c.PProf):
		all.add("pprof", "%q is reached from other machines, and profiles show what is in memory: use 127.0.0.1:%s, and a tunnel", c.PProf, port)
	case c.PProf == c.HTTP && port != "0":
		all.add("pprof", "%q is the address of http: give another port", c.PProf)
	}
}

// valueProblems adds what is wrong with the protocols of whole values. taken are the addresses that others
// have; it adds theirs.
func valueProblems(c Config, all *problems, taken map[string]bool) {
	wrong := all.add
	if c.LMFrom != "" {
		host, port, err := net.SplitHostPort(c.LMFrom)
		_, portErr := strconv.ParseUint(port, 10, 16)
		switch {
		case err != nil || portErr != nil || host == "":
			wrong("lm-from", "%q is not HOST:PORT", c.LMFrom)
		case len(c.LM) == 0:
			wrong("lm-from", "is set, and lm is not: name the address for clients by lm")
		case slices.ContainsFunc(c.LM, func(lm string) bool { return isListener(c.LMFrom, lm) }):
			wrong("lm-from", "%q is the daemon itself, by lm: name the address of another server", c.LMFrom)
		}
	}
	for _, x := range c.valueProtocols() {
		for _, text := range x.addresses {
			_, address, err := parseValueAddress(text, c.ValuesAny)
			switch {
			case err != nil:
				wrong(x.key, "%v", err)
			case taken[address]:
				wrong(x.key, "%q is given twice, or is another protocol's", text)
			}
			taken[address] = true
		}
	}
	if _, err := respSecret(c); err != nil {
		wrong("resp-password-file", "%v", err)
	}
	if len(c.RESP) == 0 && (c.RESPPasswordFile != "" || c.RESPFlush) {
		wrong("resp", "is not set, and other settings of it are: name an address by resp")
	}
	if c.RESPUser == "" {
		wrong("resp-user", "is empty: AUTH without a user means the user default")
	}
	// A shorter lease would end while a value is moved.
	if least := sessionless.LeaseTime; len(c.LM)+len(c.RESP) > 0 && c.MaxLease < least {
		wrong("max-lease", "%s is too short for the values of lm and resp, which need %s",
			formatTime(c.MaxLease), formatTime(least))
	}
}

// isListener reports whether an address is one at which this machine listens, as far as texts show that.
func isListener(address, listener string) bool {
	host, port, err := net.SplitHostPort(listener)
	_, wanted, addressErr := net.SplitHostPort(address)
	if err != nil || addressErr != nil || port != wanted {
		return false
	}
	ip := net.ParseIP(host)
	all := host == "" || ip != nil && ip.IsUnspecified()
	return address == listener || loopback(address) && (all || loopback(listener))
}

// problems are what was found so far.
type problems []problem

func (p *problems) add(key, format string, args ...any) {
	*p = append(*p, problem{key, fmt.Sprintf(format, args...)})
}

// order is the place of a key among the settings.
func order(key string) int {
	return slices.IndexFunc(settings, func(s setting) bool { return s.key == key })
}

// memoryProblems finds what is wrong with the segment.
func memoryProblems(c Config, all *problems) {
	before := len(*all)
	if c.Size == 0 {
		all.add("size", "0 holds nothing: write the bytes for objects, such as 4GiB")
	}
	if c.ShmDir != "" && !filepath.IsAbs(c.ShmDir) {
		all.add("shm-dir", "%q must be an absolute path", c.ShmDir)
	}
	quotaProblems(all, "quota", c.Quota, c.Quotas)
	if c.MaxObjects < 0 || c.MaxObjects > 1<<24 {
		all.add("max-objects", "%d is not between 0 and %d", c.MaxObjects, 1<<24)
	}
	if c.MaxLeases < 0 || c.MaxLeases > 1<<20-1 {
		all.add("max-leases", "%d is not between 0 and %d", c.MaxLeases, 1<<20-1)
	}
	if len(*all) > before {
		return
	}
	key := "name"
	if c.Name != "" && c.Size < 4096 {
		key = "size"
	}
	if err := c.memoryOptions(nil).Validate(); err != nil {
		all.add(key, "%v", err)
	}
}

// quotaProblems finds what is wrong with the quotas of a level. key is the setting for each tenant, that for
// single ones has an s behind it.
func quotaProblems(all *problems, key string, each int64, single []string) {
	if each < 0 {
		all.add(key, "is negative")
	}
	_, wrong := parseQuotas(single)
	for _, w := range wrong {
		all.add(key+"s", "%s", w)
	}
}

// diskProblems finds what is wrong with the level on disk.
func (c Config) diskProblems(all *problems) {
	if c.Disk == "" {
		if c.DiskSize != 0 {
			all.add("disk-size", "is set, and disk is not: name the folder by disk")
		}
		if c.DiskQuota != 0 || len(c.DiskQuotas) > 0 {
			all.add("disk-quota", "is set, and disk is not: name the folder by disk")
		}
		return
	}
	quotaProblems(all, "disk-quota", c.DiskQuota, c.DiskQuotas)
	at, err := location.Parse(c.Disk)
	switch {
	case err != nil:
		all.add("disk", "%v", err)
	case !filepath.IsAbs(at.Folder):
		all.add("disk", "%q must be the absolute path of a folder", c.Disk)
	case at.Space == "" && at.NeedsSpace():
		all.add("disk", "%s names no space, and files of this layout do not contain the space of their objects, which clients get as the space of their session: add &space=SPACE", c.Disk)
	default:
		if err := c.diskOptions(at).Validate(); err != nil {
			all.add("disk", "%v", err)
		}
	}
}

// s3Problems finds what is wrong with the level in a bucket.
func (c Config) s3Problems(all *problems) {
	if c.S3 == "" {
		return
	}
	if err := c.s3Options().Validate(); err != nil {
		all.add("s3", "%v", err)
	}
}

// folderProblems finds what is wrong with the level in a folder of several hosts.
func (c Config) folderProblems(all *problems) {
	if c.Folder == "" {
		if c.FolderSize != 0 {
			all.add("folder-size", "is set, and folder is not: name the folder by folder")
		}
		return
	}
	at, err := location.Parse(folderScheme + c.Folder)
	switch {
	case err != nil:
		all.add("folder", "%v", err)
	case !filepath.IsAbs(at.Folder):
		all.add("folder", "%q must be the absolute path of a folder", c.Folder)
	case c.Disk != "" && filepath.Clean(at.Folder) == filepath.Clean(c.diskFolder()):
		all.add("folder", "%s is the folder of disk, too, which is for one process", c.Folder)
	case at.Space == "" && at.NeedsSpace():
		all.add("folder", "%s names no space, and files of this layout do not contain the space of their objects, which clients get as the space of their session: add &space=SPACE", c.Folder)
	default:
		if err := c.folderOptions(at, nil).Validate(); err != nil {
			all.add("folder", "%v", err)
		}
	}
}

// redisProblems finds what is wrong with the level in a Redis.
func (c Config) redisProblems(all *problems) {
	before := len(*all)
	if c.Redis == "" {
		for key, set := range map[string]bool{
			"redis-user": c.RedisUser != "", "redis-password-file": c.RedisPasswordFile != "",
			"redis-sentinel-user":          c.RedisSentinelUser != "",
			"redis-sentinel-password-file": c.RedisSentinelPasswordFile != "",
		} {
			if set {
				all.add(key, "is set, and redis is not: name the server by redis")
			}
		}
		return
	}
	for key, file := range map[string]string{"redis-password-file": c.RedisPasswordFile,
		"redis-sentinel-password-file": c.RedisSentinelPasswordFile} {
		if file == "" {
			continue
		}
		if _, err := passwordfile.Read(file); err != nil {
			all.add(key, "%v", err)
		}
	}
	if len(*all) == before {
		if _, err := c.redisOptions(); err != nil {
			all.add("redis", "%v", err)
		}
	}
}
