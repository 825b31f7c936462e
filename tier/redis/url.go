package redis

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// target is what a URL names.
type target struct {
	network  string   // tcp or unix
	addrs    []string // of servers of a cluster, or of Sentinels, or one
	cluster  bool
	master   string // behind Sentinels, if not empty
	database int
	secure   bool
}

var errScheme = invalid("the URL has an unknown scheme; there are redis, rediss, unix, redis+cluster, rediss+cluster, redis+sentinel, rediss+sentinel")

// parameters that a URL may have.
var parameters = []string{"layout", "space", "size", "prefix", "ttl", "timeout", "db", "ca", "cert", "key"}

// parse takes a URL apart. Its errors repeat nothing of the URL but the values of known parameters: where a
// character is missing or too many, a password stands where a scheme, an address, a path or a parameter is
// lookup for.
func (s *settings) parse(text string) (url.Values, error) {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return nil, invalid("a URL without ://, want for example redis://127.0.0.1:6379")
	}
	rest, query, _ := strings.Cut(rest, "?")
	if strings.Contains(query, "@") {
		return nil, invalid("the parameters of the URL contain @: a password writes / as %%2F, ? as %%3F and @ as %%40, a parameter @ as %%40")
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, invalid("the parameters of the URL can't be read")
	}
	for name, v := range values {
		if !slices.Contains(parameters, name) {
			return nil, invalid("the URL has an unknown parameter; there are %s", strings.Join(parameters, ", "))
		}
		if len(v) != 1 {
			return nil, invalid("the URL has the parameter %q more than once", name)
		}
	}
	slash := strings.IndexByte(rest+"/", '/')
	if at := strings.LastIndexByte(rest[:slash], '@'); at >= 0 {
		if strings.Contains(rest[:at], "@") {
			return nil, invalid("the URL contains @ more than once: user and password stand once, in front of all addresses, and write @ as %%40")
		}
		if err := s.parseUser(rest[:at]); err != nil {
			return nil, err
		}
		rest = rest[at+1:]
	}
	base, kind, _ := strings.Cut(strings.ToLower(scheme), "+")
	switch base {
	case "redis", "valkey":
	case "rediss", "valkeys":
		s.secure = true
	case "unix":
		if kind != "" {
			return nil, invalid("a socket is unix://, it is no cluster and no Sentinel")
		}
		return values, s.parseSocket(rest)
	default:
		return nil, errScheme
	}
	s.network = "tcp"
	hosts, path, _ := strings.Cut(rest, "/")
	path = strings.TrimSuffix(path, "/")
	if strings.Contains(path, "@") {
		return nil, invalid("the path of the URL contains @: a password writes / as %%2F, ? as %%3F and @ as %%40")
	}
	port := "6379"
	switch kind {
	case "":
	case "cluster":
		s.cluster = true
	case "sentinel":
		port = "26379"
		s.master, path, _ = strings.Cut(path, "/")
		if s.master, err = url.PathUnescape(s.master); err != nil || s.master == "" {
			return nil, invalid("the URL has no name of a master: redis+sentinel://HOST:26379/MASTER")
		}
	default:
		return nil, errScheme
	}
	if err := s.parseDatabase(path); err != nil {
		return nil, err
	}
	for host := range strings.SplitSeq(hosts, ",") {
		addr, ok := address(host, port)
		if !ok {
			return nil, invalid("the address %d of the URL is not HOST or HOST:PORT, with a port from 1 to 65535; a user and a password need an @ behind them", len(s.addrs)+1)
		}
		s.addrs = append(s.addrs, addr)
	}
	if kind == "" && len(s.addrs) != 1 {
		return nil, invalid("the URL has %d addresses; several are redis+cluster:// or redis+sentinel://", len(s.addrs))
	}
	return values, nil
}

// parseUser sets user and password, unless they are set.
func (s *settings) parseUser(text string) error {
	user, password, _ := strings.Cut(text, ":")
	user, err := url.PathUnescape(user)
	if err == nil {
		password, err = url.PathUnescape(password)
	}
	if err != nil {
		return invalid("user and password of the URL can't be read: write other characters than letters and digits as %%XX")
	}
	if s.User == "" && s.Password == "" {
		s.User, s.Password = user, password
	}
	return nil
}

func (s *settings) parseSocket(path string) error {
	path, err := url.PathUnescape(path)
	if err != nil || !strings.HasPrefix(path, "/") {
		return invalid("the URL has no absolute path of a socket: unix:///run/redis.sock")
	}
	s.network, s.addrs = "unix", []string{path}
	return nil
}

func (s *settings) parseDatabase(text string) error {
	if text == "" {
		return nil
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return invalid("the database in the URL is not a number from 0 to 65535")
	}
	if s.cluster && n != 0 {
		return invalid("a cluster has only the database 0")
	}
	s.database = int(n)
	return nil
}

// address completes HOST[:PORT]. It returns false for other texts.
func address(text, port string) (string, bool) {
	host := text
	if h, p, err := net.SplitHostPort(text); err == nil {
		host, port = h, p
	} else if strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]") {
		host = text[1 : len(text)-1]
	} else if strings.Contains(text, ":") {
		return "", false
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", false
	}
	if host == "" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port), true
}

// apply sets what only the parameters have.
func (s *settings) apply(p url.Values) error {
	if v := p.Get("db"); v != "" {
		if err := s.parseDatabase(v); err != nil {
			return err
		}
	}
	for name, to := range map[string]*time.Duration{"ttl": &s.TTL, "timeout": &s.Timeout} {
		if v := p.Get(name); v != "" && *to == 0 {
			d, err := time.ParseDuration(v)
			if err != nil || d <= 0 {
				return invalid("%s=%q is not a time such as 30s", name, v)
			}
			*to = d
		}
	}
	if s.Prefix == "" {
		s.Prefix = p.Get("prefix")
	}
	if err := s.applyLayout(p); err != nil {
		return err
	}
	return s.applyTLS(p)
}

func (s *settings) applyLayout(p url.Values) error {
	var size int64
	if v := p.Get("size"); v != "" {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n <= 0 || p.Get("layout") != "resp" {
			return invalid("size=%q is not a number of bytes, or the layout is not resp", v)
		}
		size = n
	}
	var layout Layout
	switch name := p.Get("layout"); name {
	case "", "objects":
		if p.Has("space") {
			return invalid("the URL has a space, but the layout keeps all spaces: it is for lmcache and resp")
		}
		layout = Objects{}
	case "lmcache":
		layout = LMCache{Space: p.Get("space")}
	case "resp":
		layout = RESP{Space: p.Get("space"), Size: size}
	default:
		return invalid("unknown layout %q; there are objects, lmcache, resp", name)
	}
	if s.Layout == nil {
		s.Layout = layout
	}
	return nil
}

func (s *settings) applyTLS(p url.Values) error {
	files := p.Get("ca") + p.Get("cert") + p.Get("key")
	if !s.secure && s.TLS == nil && files != "" {
		return invalid("the URL names files for TLS, but is not rediss://")
	}
	if !s.secure || s.TLS != nil {
		return nil
	}
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	if ca := p.Get("ca"); ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return fmt.Errorf("tier/redis: certificates of authorities: %w", err)
		}
		s.TLS.RootCAs = x509.NewCertPool()
		if !s.TLS.RootCAs.AppendCertsFromPEM(pem) {
			return invalid("%s contains no certificate", ca)
		}
	}
	if p.Get("cert") != "" || p.Get("key") != "" {
		pair, err := tls.LoadX509KeyPair(p.Get("cert"), p.Get("key"))
		if err != nil {
			return fmt.Errorf("tier/redis: certificate of this client (cert and key): %w", err)
		}
		s.TLS.Certificates = []tls.Certificate{pair}
	}
	return nil
}
