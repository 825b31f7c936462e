package s3

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

const (
	// connBuffer is the size of the buffers of a connection. Longer parts are read straight into their memory.
	connBuffer = 64 << 10
	// maxAnswer is the most bytes of an answer that is no part of an object: a page of a list has a thousand
	// keys of at most 1024 bytes, which are escaped.
	maxAnswer = 8 << 20
	// credentialTime is the longest wait for each source of credentials.
	credentialTime = 2 * time.Second
)

// newClient makes the client of the level. It dials nothing yet.
func newClient(s *settings) (*minio.Core, *http.Transport, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.TLS != nil {
		config = s.TLS.Clone()
	}
	transport := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: s.Timeout, KeepAlive: 30 * time.Second}).DialContext,
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    s.Timeout,
		MaxIdleConnsPerHost:    s.Connections + 1, // and one of the breaker
		IdleConnTimeout:        time.Minute,
		DisableCompression:     true, // the bytes are what was put
		ReadBufferSize:         connBuffer,
		WriteBufferSize:        connBuffer,
		MaxResponseHeaderBytes: 64 << 10,
		// HTTP/1 alone: a connection for each round trip is what stores are made for.
		TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{},
	}
	lookup := minio.BucketLookupPath
	if s.virtualHost {
		lookup = minio.BucketLookupDNS
	}
	c, err := minio.NewCore(s.endpoint, &minio.Options{
		Creds: credentials.New(newChain(s)), Secure: s.secure, Transport: guard{transport}, Region: s.region,
		BucketLookup: lookup,
		MaxRetries:   1, // the level repeats what may be repeated
	})
	if err != nil {
		return nil, nil, invalid("the endpoint: %v", err)
	}
	return c, transport, nil
}

// guard passes requests on, and bounds answers: the client reads lists and errors whole.
type guard struct{ next http.RoundTripper }

// ifMatch in a context is the ETag of an If-Match header, where the client has no option for it.
type ifMatch struct{}

func (g guard) RoundTrip(r *http.Request) (*http.Response, error) {
	if etag, ok := r.Context().Value(ifMatch{}).(string); ok {
		r = r.Clone(r.Context())
		r.Header.Set("If-Match", `"`+etag+`"`)
	}
	answer, err := g.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if r.Header.Get("Range") == "" {
		answer.Body = &bounded{answer.Body, maxAnswer}
	}
	return answer, nil
}

// bounded is the body of an answer that has a longest length.
type bounded struct {
	io.ReadCloser
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLong
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

var errTooLong = fmt.Errorf("the answer has more than %d bytes", maxAnswer)

// chain has the sources of credentials, and uses the first that has some.
type chain struct {
	sources []source
	used    credentials.Provider // nil until one had some
}

type source struct {
	name string
	credentials.Provider
}

func newChain(s *settings) *chain {
	if s.AccessKey != "" {
		return &chain{sources: []source{{"Options", &credentials.Static{Value: credentials.Value{AccessKeyID: s.AccessKey,
			SecretAccessKey: s.SecretKey, SessionToken: s.SessionToken, SignerType: credentials.SignatureV4}}}}}
	}
	file := source{"the file of credentials", &credentials.FileAWSCredentials{Filename: s.credentials, Profile: s.profile}}
	if s.credentials != "" || s.profile != "" {
		return &chain{sources: []source{file}}
	}
	roles := source{"the role of this machine", &credentials.IAM{Client: &http.Client{Timeout: credentialTime}, Region: s.region}}
	for _, name := range []string{"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
		"AWS_CONTAINER_CREDENTIALS_FULL_URI"} {
		if os.Getenv(name) != "" {
			roles.name = name
			return &chain{sources: []source{{"the environment", &credentials.EnvAWS{}}, roles, file}}
		}
	}
	return &chain{sources: []source{{"the environment", &credentials.EnvAWS{}}, file, roles}}
}

// errCredentials is that no source has credentials.
var errCredentials = errors.New("there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a file of them by credentials in the URL")

// RetrieveWithCredContext asks the sources, one after the other.
func (c *chain) RetrieveWithCredContext(in *credentials.CredContext) (credentials.Value, error) {
	errs := []error{errCredentials}
	for _, s := range c.sources {
		v, err := s.RetrieveWithCredContext(in)
		if err == nil && v.AccessKeyID != "" && v.SecretAccessKey != "" {
			c.used = s.Provider
			return v, nil
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.name, err))
		}
	}
	return credentials.Value{}, errors.Join(errs...)
}

// Retrieve is what the client called before there were contexts.
func (c *chain) Retrieve() (credentials.Value, error) { return c.RetrieveWithCredContext(nil) }

// IsExpired reports whether credentials have to be asked for.
func (c *chain) IsExpired() bool { return c.used == nil || c.used.IsExpired() }

// ask asks the store about an object that nobody has. The error is not explained.
func (l *Level) ask(ctx context.Context) error {
	ctx, cancel, _ := l.settings.limited(ctx, 0)
	defer cancel()
	err := l.readRange(ctx, l.settings.prefix+"!ping", "", 0, 1, func(io.Reader, int64, string) error { return nil })
	if errors.Is(err, errMissing) {
		return nil
	}
	return err
}

// probe returns nil if the store answers anything but that it refuses this client.
func (l *Level) probe(ctx context.Context) error {
	if err := l.ask(ctx); !answered(err) || refused(err) {
		return err
	}
	return nil
}
