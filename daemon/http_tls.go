package daemon

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"
)

// maxPEM is the most bytes of a file with certificates or a key.
const maxPEM = 1 << 20

// httpTLS returns what HTTP does by TLS, or nil. The error is a problem of one setting.
func (c Config) httpTLS() (*tls.Config, *problem) {
	switch {
	case c.HTTPCert == "" && c.HTTPCertKey != "":
		return nil, &problem{"http-cert-key", "is set, and http-cert is not: name the file of the certificate by http-cert"}
	case c.HTTPCert == "" && c.HTTPClientCA != "":
		return nil, &problem{"http-client-ca", "clients show a certificate by TLS only: " +
			"give the daemon's own certificate by http-cert, and its key by http-cert-key"}
	case c.HTTPCert == "":
		return nil, nil
	case c.HTTPCertKey == "":
		return nil, &problem{"http-cert", "needs its private key: name its file by http-cert-key"}
	}
	cert, err := readPEM(c.HTTPCert)
	if err != nil {
		return nil, &problem{"http-cert", err.Error()}
	}
	key, err := readPEM(c.HTTPCertKey)
	if err != nil {
		return nil, &problem{"http-cert-key", err.Error()}
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, &problem{"http-cert", fmt.Sprintf("%s and %s are no certificate and its key, as PEM: %v",
			c.HTTPCert, c.HTTPCertKey, err)}
	}
	config := &tls.Config{
		Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12,
		SessionTicketsDisabled: true, // a session would outlive the authority of its client's certificate
	}
	if c.HTTPClientCA == "" {
		return config, nil
	}
	authorities, err := readPEM(c.HTTPClientCA)
	if err != nil {
		return nil, &problem{"http-client-ca", err.Error()}
	}
	// Probes have none, and are answered.
	config.ClientAuth, config.ClientCAs = tls.VerifyClientCertIfGiven, x509.NewCertPool()
	if !config.ClientCAs.AppendCertsFromPEM(authorities) {
		return nil, &problem{"http-client-ca", c.HTTPClientCA + " contains no certificate, as PEM"}
	}
	return config, nil
}

// readPEM reads a file, and nothing that has no end.
func readPEM(file string) ([]byte, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxPEM {
		return nil, fmt.Errorf("%s is no file of at most %d bytes: %w", file, maxPEM, fs.ErrInvalid)
	}
	return os.ReadFile(file)
}

// renewed is the TLS of HTTP with its files as they are: whoever renews a certificate need not restart the daemon.
type renewed struct {
	config Config
	log    *slog.Logger

	mu    sync.Mutex    // guards what follows
	files []fs.FileInfo // as they were when they were read
	tls   *tls.Config   // the last that was right
}

// newRenewed returns the TLS of a configuration, or nil.
func newRenewed(c Config, log *slog.Logger) (*renewed, error) {
	r := &renewed{config: c, log: log}
	r.files = r.look()
	config, wrong := c.httpTLS()
	if wrong != nil {
		return nil, fmt.Errorf("%s: %s", wrong.key, wrong.text)
	}
	if config == nil {
		return nil, nil
	}
	r.tls = config
	return r, nil
}

// look returns what the files are; nil is one that is not there.
func (r *renewed) look() (files []fs.FileInfo) {
	for _, name := range []string{r.config.HTTPCert, r.config.HTTPCertKey, r.config.HTTPClientCA} {
		info, _ := os.Stat(name)
		files = append(files, info)
	}
	return files
}

// server is the configuration for the listener.
func (r *renewed) server() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, SessionTicketsDisabled: true,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return r.current(), nil },
	}
}

// current reads the files again if they are others than before. What is wrong, such as a certificate whose key is
// still to come, leaves all as it was until they change again.
func (r *renewed) current() *tls.Config {
	r.mu.Lock()
	defer r.mu.Unlock()
	files := r.look() // before they are read: if one changes in between, it is read again
	if slices.EqualFunc(files, r.files, sameFile) {
		return r.tls
	}
	r.files = files
	config, wrong := r.config.httpTLS()
	if wrong != nil {
		r.log.Warn("TLS of HTTP goes on with the certificates that it had; put right what this file has",
			"setting", wrong.key, "problem", wrong.text)
		return r.tls
	}
	r.tls = config
	r.log.Info("TLS of HTTP has new certificates", "until", certificateEnd(config).Format(time.RFC3339))
	return config
}

func sameFile(a, b fs.FileInfo) bool {
	if a == nil || b == nil {
		return a == b
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// certificateEnd is when the certificate of HTTP ends.
func certificateEnd(c *tls.Config) time.Time { return c.Certificates[0].Leaf.NotAfter }

// withCertificates lets only those in who have shown a certificate of the authorities that were asked for.
// See docs/decisions.md, "Client certificates are verified if given, and asked for by path".
func withCertificates(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if (q.TLS == nil || len(q.TLS.VerifiedChains) == 0) && !publicPaths[q.URL.Path] {
			replyJSON(w, http.StatusForbidden, map[string]any{
				"detail": "there is no client certificate: show one of an authority that the daemon has in http-client-ca",
			})
			return
		}
		next.ServeHTTP(w, q)
	})
}
