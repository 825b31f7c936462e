package daemon

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/internal/page"
)

// authority signs certificates for tests.
type authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return authority{t, cert, key}
}

// pem is the authority as a file has it.
func (a authority) pem() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}))
}

// pool trusts the authority.
func (a authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// sign returns a certificate for 127.0.0.1, and its key, as files have them.
func (a authority) sign(name string, end time.Time) (cert, key string) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: end,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, &k.PublicKey, a.key)
	require.NoError(a.t, err)
	raw, err := x509.MarshalPKCS8PrivateKey(k)
	require.NoError(a.t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}))
}

// pair is sign for a client.
func (a authority) pair(name string) tls.Certificate {
	pair, err := tls.X509KeyPair(a.files(name))
	require.NoError(a.t, err)
	return pair
}

func (a authority) files(name string) (cert, key []byte) {
	c, k := a.sign(name, time.Now().Add(time.Hour))
	return []byte(c), []byte(k)
}

// encrypt makes HTTP of a configuration one by TLS, with a certificate of this authority.
func (a authority) encrypt(c *Config) {
	cert, key := a.sign("daemon", time.Now().Add(time.Hour))
	c.HTTPCert, c.HTTPCertKey = write(a.t, cert), write(a.t, key)
}

// tlsClient is a client that trusts an authority, and has certificates. Each of its requests has a connection of its own.
func tlsClient(trusted authority, own ...tls.Certificate) *http.Client {
	return &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true, ForceAttemptHTTP2: true,
		TLSClientConfig: &tls.Config{RootCAs: trusted.pool(), Certificates: own}}}
}

// askTLS returns the status and the text of an answer.
func askTLS(t *testing.T, client *http.Client, url string, header ...string) (int, string) {
	t.Helper()
	q, err := http.NewRequest(http.MethodGet, url, nil)
	require.NoError(t, err)
	for i := 0; i < len(header); i += 2 {
		q.Header.Set(header[i], header[i+1])
	}
	resp, err := client.Do(q)
	require.NoError(t, err)
	require.Equal(t, "HTTP/1.1", resp.Proto, "the bounds of connections count requests one after the other")
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode, string(body)
}

// TestHTTPByTLS: with a certificate, and with certificates of clients, and with keys beside them: all that was set is needed,
// and by probes nothing.
func TestHTTPByTLS(t *testing.T) {
	ours, others := newAuthority(t), newAuthority(t)
	known, stranger := ours.pair("client"), others.pair("client")
	for name, c := range map[string]struct {
		clients, keys bool
	}{"tls": {}, "mtls": {clients: true}, "key": {keys: true}, "mtls and key": {clients: true, keys: true}} {
		t.Run(name, func(t *testing.T) {
			r := testRunner(t)
			ours.encrypt(&r.config)
			var bearer []string
			if c.clients {
				r.config.HTTPClientCA = write(t, ours.pem())
			}
			if c.keys {
				r.config.HTTPKeyFile, bearer = []string{write(t, "a key\n")}, []string{"Authorization", "Bearer a key"}
			}
			require.NoError(t, r.config.Validate())
			w, err := r.openHTTP(context.Background())
			require.NoError(t, err)
			defer func() { require.NoError(t, w.close()) }()
			url := "https://" + w.addr

			none, own := tlsClient(ours), tlsClient(ours, known)
			for _, path := range []string{"/healthz", "/readyz"} {
				status, _ := askTLS(t, none, url+path)
				require.Equal(t, 200, status, "a probe has nothing")
			}
			for _, path := range []string{"/metrics", "/page/", "/page/events?x=1"} {
				if !c.clients && !c.keys {
					continue
				}
				status, body := askTLS(t, none, url+path)
				require.Contains(t, []int{401, 403}, status)
				require.NotContains(t, body, "ringcache_")
				require.Equal(t, c.clients, strings.Contains(body, "http-client-ca"))
			}
			if c.keys {
				status, _ := askTLS(t, own, url+"/metrics")
				require.Equal(t, 401, status, "a certificate is no key")
			}
			if c.clients {
				status, _ := askTLS(t, none, url+"/metrics", bearer...)
				require.Equal(t, 403, status, "a key is no certificate")
				_, err := tlsClient(ours, stranger).Get(url + "/metrics") //nolint:bodyclose // there is none
				require.Error(t, err, "a certificate of another authority")
			}
			status, body := askTLS(t, own, url+"/metrics", bearer...)
			require.Equal(t, 200, status)
			require.Contains(t, body, "ringcache_ready 1")
			status, _ = askTLS(t, own, url+"/page/", bearer...)
			require.Equal(t, 200, status)
			q, err := http.NewRequest(http.MethodGet, url+"/page/", nil)
			require.NoError(t, err)
			q.Host = "node.example"
			if c.keys {
				q.Header.Set("Authorization", "Bearer a key")
			}
			resp, err := own.Do(q)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, 200, resp.StatusCode, "the certificate is what protects the name")

			resp, err = http.Get("http://" + w.addr + "/metrics")
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, http.StatusBadRequest, resp.StatusCode, "nothing goes unencrypted")
			_, err = tls.Dial("tcp", w.addr, &tls.Config{RootCAs: ours.pool(), MaxVersion: tls.VersionTLS11})
			require.Error(t, err)
		})
	}
}

// TestStreamByTLS: events come as they happen, to who has a certificate.
func TestStreamByTLS(t *testing.T) {
	a := newAuthority(t)
	r := testRunner(t)
	a.encrypt(&r.config)
	r.config.HTTPClientCA = write(t, a.pem())
	w, err := r.openHTTP(context.Background())
	require.NoError(t, err)
	resp, err := tlsClient(a, a.pair("client")).Get("https://" + w.addr + page.StreamPath)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, 200, resp.StatusCode)
	b := make([]byte, 1)
	_, err = io.ReadFull(resp.Body, b)
	require.NoError(t, err)
	require.NoError(t, w.close())
}

// TestConnectionsByTLSAreBounded: a request of a connection by TLS counts as one, too. Else connections at work would look
// like those that send nothing, and go first.
func TestConnectionsByTLSAreBounded(t *testing.T) {
	a := newAuthority(t)
	r := testRunner(t)
	a.encrypt(&r.config)
	w, err := r.openHTTP(context.Background())
	require.NoError(t, err)
	defer func() { require.NoError(t, w.close()) }()
	seen := make(chan bool, 1)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	encrypted, err := newRenewed(r.config, r.log)
	require.NoError(t, err)
	second := &http.Server{
		ConnContext: w.server.ConnContext,
		Handler: http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
			_, ok := q.Context().Value(connKey{}).(*boundedConn)
			seen <- ok
		}),
	}
	served := make(chan error, 1)
	go func() { served <- second.Serve(tls.NewListener(newBounded(l, 2), encrypted.server())) }()
	status, _ := askTLS(t, tlsClient(a), "https://"+l.Addr().String())
	require.Equal(t, 200, status)
	require.True(t, <-seen)
	require.NoError(t, second.Close())
	require.ErrorIs(t, <-served, http.ErrServerClosed)
}

// lockedLog is a log that is read while it is written.
type lockedLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedLog) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

// TestCertificatesAreReadAgain: a new certificate, and new authorities of clients, count from the next connection on. What is
// wrong leaves what was there, and is one line of the log.
func TestCertificatesAreReadAgain(t *testing.T) {
	before, after := newAuthority(t), newAuthority(t)
	log := &lockedLog{}
	c := testConfig(t)
	dir := t.TempDir()
	c.HTTPCert, c.HTTPCertKey, c.HTTPClientCA = dir+"/cert", dir+"/key", dir+"/ca"
	replace := func(path, text string) { // as whoever renews them does
		require.NoError(t, os.WriteFile(path+".new", []byte(text), 0o600))
		require.NoError(t, os.Rename(path+".new", path))
	}
	cert, key := before.sign("first", time.Now().Add(time.Hour))
	replace(c.HTTPCert, cert)
	replace(c.HTTPCertKey, key)
	replace(c.HTTPClientCA, before.pem())
	r := newRunner(RunOptions{Config: c, Log: log})
	w, err := r.openHTTP(context.Background())
	require.NoError(t, err)
	defer func() { require.NoError(t, w.close()) }()
	name := func() string {
		t.Helper()
		conn, err := tls.Dial("tcp", w.addr, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // whoever it is
		require.NoError(t, err)
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	first := tlsClient(before, before.pair("client"))
	status, _ := askTLS(t, first, "https://"+w.addr+"/metrics")
	require.Equal(t, 200, status)

	// A certificate comes before its key.
	cert, key = after.sign("second", time.Now().Add(time.Hour))
	replace(c.HTTPCert, cert)
	for range 3 {
		require.Equal(t, "first", name())
	}
	require.Equal(t, 1, log.count("goes on with the certificates that it had"))
	replace(c.HTTPCertKey, key)
	require.Equal(t, "second", name())
	require.Equal(t, 1, log.count("new certificates"))
	second := tlsClient(after, before.pair("client"))
	status, _ = askTLS(t, second, "https://"+w.addr+"/metrics")
	require.Equal(t, 200, status, "the authority of clients is still the first")

	require.NoError(t, os.Remove(c.HTTPClientCA))
	status, _ = askTLS(t, second, "https://"+w.addr+"/metrics")
	require.Equal(t, 200, status, "no file is not that none is needed")
	status, _ = askTLS(t, tlsClient(after), "https://"+w.addr+"/metrics")
	require.Equal(t, 403, status)
	replace(c.HTTPClientCA, after.pem())
	_, err = second.Get("https://" + w.addr + "/metrics") //nolint:bodyclose // there is none
	require.Error(t, err)
	status, _ = askTLS(t, tlsClient(after, after.pair("client")), "https://"+w.addr+"/metrics")
	require.Equal(t, 200, status)
}

// TestCertificatesThatAreNone are refused with the setting that is wrong, and what to do.
func TestCertificatesThatAreNone(t *testing.T) {
	a := newAuthority(t)
	cert, key := a.sign("daemon", time.Now().Add(time.Hour))
	_, another := a.sign("daemon", time.Now().Add(time.Hour))
	text := write(t, "nothing of that")
	for name, c := range map[string]struct{ cert, key, ca, want string }{
		"no key":              {cert: write(t, cert), want: "http-cert: needs its private key: name its file by http-cert-key"},
		"key alone":           {key: write(t, key), want: "http-cert-key: is set, and http-cert is not"},
		"authority alone":     {ca: write(t, a.pem()), want: "http-client-ca: clients show a certificate by TLS only"},
		"no file":             {cert: "/none/cert", key: write(t, key), want: "http-cert: stat /none/cert: no such file"},
		"no file of the key":  {cert: write(t, cert), key: "/none/key", want: "http-cert-key: stat /none/key: no such file"},
		"a folder":            {cert: t.TempDir(), key: write(t, key), want: "is no file of at most"},
		"a device":            {cert: write(t, cert), key: "/dev/zero", want: "http-cert-key: /dev/zero is no file of at most"},
		"text":                {cert: text, key: write(t, key), want: "are no certificate and its key, as PEM"},
		"key of another":      {cert: write(t, cert), key: write(t, another), want: "private key does not match"},
		"authority is a text": {cert: write(t, cert), key: write(t, key), ca: text, want: "http-client-ca: " + text + " contains no certificate"},
		"authority is a key":  {cert: write(t, cert), key: write(t, key), ca: write(t, key), want: "contains no certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			config := testConfig(t)
			config.HTTPCert, config.HTTPCertKey, config.HTTPClientCA = c.cert, c.key, c.ca
			err := config.Validate()
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "PRIVATE")
			r := newRunner(RunOptions{Config: config, Log: io.Discard})
			_, err = r.openHTTP(t.Context())
			require.ErrorContains(t, err, c.want)
		})
	}
}

// TestCacheIsNotClearedWithoutACertificate: other machines need a key, or a certificate.
func TestCacheIsNotClearedWithoutACertificate(t *testing.T) {
	a := newAuthority(t)
	cert, key := a.sign("daemon", time.Now().Add(time.Hour))
	flags := map[string]string{
		"http":          "0.0.0.0:9401",
		"http-any":      "true",
		"lmcache":       "grpc://127.0.0.1:5555",
		"http-cert":     write(t, cert),
		"http-cert-key": write(t, key),
	}
	require.Contains(
		t,
		loadProblems(t, Sources{Flags: flags})[0],
		"http-key-file (default): other machines could clear the cache",
	)
	flags["http-client-ca"] = write(t, a.pem())
	_, err := Sources{Flags: flags}.Load()
	require.NoError(t, err)
}
