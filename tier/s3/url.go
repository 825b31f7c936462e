package s3

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

	"github.com/minio/minio-go/v7/pkg/encrypt"
	"github.com/minio/minio-go/v7/pkg/s3utils"
)

// target is what a URL names.
type target struct {
	bucket string
	prefix string // "" or with a slash at its end

	endpoint    string // host and port
	secure      bool
	region      string
	virtualHost bool // the bucket is a part of the host's name

	credentials, profile string
	encryption           encrypt.ServerSide
	storageClass         string
}

// parameters that a URL may have.
var parameters = []string{"endpoint", "region", "path-style", "ca", "credentials", "profile", "sse", "sse-kms-key",
	"storage-class", "part-size", "timeout"}

const (
	maxPrefix = 400 // with two texts of maxText, a key has at most 1024 bytes

	amazon = "s3.amazonaws.com"
)

// parse takes a URL apart. Its errors repeat nothing of what stands in the place of a user or a password.
func (s *settings) parse(text string) error {
	rest, ok := strings.CutPrefix(text, "s3://")
	if !ok {
		return invalid("the URL does not begin with s3://, want for example s3://bucket/prefix?endpoint=https://host:9000")
	}
	rest, query, _ := strings.Cut(rest, "?")
	p, err := url.ParseQuery(query)
	if err != nil {
		return invalid("the parameters of the URL can't be read")
	}
	for name, v := range p {
		if !slices.Contains(parameters, name) {
			return invalid("the URL has an unknown parameter; there are %s", strings.Join(parameters, ", "))
		}
		if len(v) != 1 {
			return invalid("the URL has the parameter %q more than once", name)
		}
	}
	bucket, prefix, _ := strings.Cut(rest, "/")
	if strings.Contains(bucket, "@") {
		return invalid("the URL has a user or a key in front of the bucket: credentials are in the environment or in a file")
	}
	if err := s3utils.CheckValidBucketNameStrict(bucket); err != nil {
		return invalid("the bucket of the URL: %v", err)
	}
	if prefix, err = url.PathUnescape(prefix); err != nil {
		return invalid("the prefix of the URL can't be read: write %% as %%25")
	}
	s.bucket = bucket
	if s.prefix = strings.Trim(prefix, "/"); s.prefix != "" {
		s.prefix += "/"
	}
	switch {
	case len(s.prefix) > maxPrefix:
		return invalid("a prefix of %d bytes, the most is %d", len(s.prefix), maxPrefix)
	case strings.Contains(s.prefix, "//"), strings.ContainsFunc(s.prefix, func(r rune) bool { return r < ' ' || r == 0x7f || r == 0xfffd }),
		slices.ContainsFunc(strings.Split(s.prefix, "/"), func(part string) bool { return part == "." || part == ".." }):
		return invalid("the prefix of the URL has an empty part, . or .., or characters that are not printed")
	}
	for _, apply := range []func(url.Values) error{s.parseEndpoint, s.parseTexts, s.parseEncryption, s.parseCA} {
		if err := apply(p); err != nil {
			return err
		}
	}
	return nil
}

func (s *settings) parseEndpoint(p url.Values) error {
	s.region = p.Get("region")
	for _, name := range []string{"AWS_REGION", "AWS_DEFAULT_REGION"} {
		if s.region == "" {
			s.region = os.Getenv(name)
		}
	}
	s.endpoint, s.secure = amazon, true
	if text := p.Get("endpoint"); text != "" {
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
			return invalid("the endpoint of the URL is not https://HOST[:PORT] or http://HOST[:PORT]")
		}
		if _, port, err := net.SplitHostPort(u.Host); err == nil {
			if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
				return invalid("the endpoint of the URL has no port from 1 to 65535")
			}
		}
		s.endpoint, s.secure = u.Host, u.Scheme == "https"
	}
	isAmazon := s3utils.IsAmazonEndpoint(url.URL{Host: s.endpoint})
	if s.region == "" && !isAmazon {
		s.region = "us-east-1" // of stores that have none
	}
	s.virtualHost = isAmazon
	switch v := p.Get("path-style"); v {
	case "":
	case "true", "false":
		s.virtualHost = v == "false"
	default:
		return invalid("path-style=%q is not true or false", v)
	}
	return nil
}

func (s *settings) parseTexts(p url.Values) error {
	s.credentials, s.profile, s.storageClass = p.Get("credentials"), p.Get("profile"), p.Get("storage-class")
	if s.credentials != "" {
		if _, err := os.Stat(s.credentials); err != nil {
			return fmt.Errorf("tier/s3: the file of credentials: %w", err)
		}
	}
	if v := p.Get("timeout"); v != "" {
		d, err := time.ParseDuration(v)
		if err != nil || d <= 0 {
			return invalid("timeout=%q is not a time such as 5s", v)
		}
		if s.Timeout == 0 {
			s.Timeout = d
		}
	}
	if v := p.Get("part-size"); v != "" {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n <= 0 {
			return invalid("part-size=%q is not a number of bytes", v)
		}
		if s.PartSize == 0 {
			s.PartSize = n
		}
	}
	return nil
}

func (s *settings) parseEncryption(p url.Values) (err error) {
	key := p.Get("sse-kms-key")
	switch v := p.Get("sse"); v {
	case "":
	case "AES256":
		s.encryption = encrypt.NewSSE()
	case "aws:kms":
		s.encryption, err = encrypt.NewSSEKMS(key, nil)
	default:
		return invalid("sse=%q is not AES256 or aws:kms", v)
	}
	if err == nil && key != "" && p.Get("sse") != "aws:kms" {
		return invalid("the URL has sse-kms-key without sse=aws:kms")
	}
	return err
}

func (s *settings) parseCA(p url.Values) error {
	ca := p.Get("ca")
	if ca != "" && !s.secure {
		return invalid("the URL names authorities, and its endpoint is not https://")
	}
	if ca == "" || s.TLS != nil {
		return nil
	}
	pem, err := os.ReadFile(ca)
	if err != nil {
		return fmt.Errorf("tier/s3: certificates of authorities: %w", err)
	}
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
	if !s.TLS.RootCAs.AppendCertsFromPEM(pem) {
		return invalid("%s contains no certificate", ca)
	}
	return nil
}
