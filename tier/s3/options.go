package s3

import (
	"context"
	"crypto/tls"
	"fmt"
	"io/fs"
	"time"
)

// Options say where the objects are.
type Options struct {
	// URL is bucket and prefix, and after a question mark parameters:
	//
	//	s3://BUCKET[/PREFIX][?endpoint=https://HOST[:PORT]][&region=R][...]
	//
	// The parameters are endpoint (default Amazon's of the region), region, path-style (true or false; default
	// true unless the endpoint is Amazon's), ca (a file with authorities), credentials and profile (a file as
	// the AWS command line has it), sse (AES256 or aws:kms), sse-kms-key, storage-class, part-size, timeout.
	// There is no place for keys in it. A field below that is set has precedence.
	URL string

	// AccessKey, SecretKey and SessionToken are credentials. Without them they come from the first of these
	// that has any: the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN), a web
	// identity or a container's role (AWS_WEB_IDENTITY_TOKEN_FILE with AWS_ROLE_ARN,
	// AWS_CONTAINER_CREDENTIALS_*), the file of the AWS command line, the role of an EC2 instance. Those that
	// end are renewed.
	AccessKey, SecretKey, SessionToken string
	// TLS, if not nil, is used for connections.
	TLS *tls.Config

	// PartSize is the most bytes of one request: larger objects are read in parts of that size, several at a
	// time, and those of more than four parts are written so, too. From 5 MiB to 512 MiB. Default 16 MiB.
	PartSize int64
	// Timeout is the limit of a round trip, and of making a connection. A second is added for every 32 MiB
	// that the round trip moves. Default 5 seconds.
	Timeout time.Duration
	// Connections is the most round trips at a time. Others wait. Default 16.
	Connections int
	// MaxBytesInFlight is the most bytes of objects that are being transferred at a time, and of memory for
	// them. A larger object is transferred alone. Default 256 MiB.
	MaxBytesInFlight int64
	// Failures is the number of calls that fail in a row before the store is down, see the page of the
	// package. Default 3.
	Failures int
	// Retry is the time between two questions to a store that is down. Default 1 second.
	Retry time.Duration
}

// Validate reports what is wrong with the options, as an fs.ErrInvalid. Files that the URL names are read.
func (o Options) Validate() error {
	_, err := o.resolve()
	return err
}

// settings are options with their defaults, and the URL taken apart.
type settings struct {
	Options
	target
}

const (
	minPart = 5 << 20 // what S3 takes of a part that is not the last
	// largest is the most bytes of an object, with its head.
	largest = 512 << 20
	// multipart is how many parts an object has at most that is written at once.
	multipart = 4
)

func (o Options) resolve() (settings, error) {
	s := settings{Options: o}
	err := s.parse(o.URL)
	if err == nil {
		err = s.check()
	}
	return s, err
}

// check gives what is not set its default.
func (s *settings) check() error {
	switch {
	case s.PartSize != 0 && (s.PartSize < minPart || s.PartSize > largest):
		return invalid("parts of %d bytes, want from %d to %d", s.PartSize, minPart, largest)
	case s.Timeout < 0:
		return invalid("the time limit is %v", s.Timeout)
	case s.Connections < 0:
		return invalid("%d connections", s.Connections)
	case s.MaxBytesInFlight < 0:
		return invalid("%d bytes in flight", s.MaxBytesInFlight)
	case s.Failures < 0:
		return invalid("%d failures", s.Failures)
	case s.Retry < 0:
		return invalid("a retry after %v", s.Retry)
	case (s.AccessKey == "") != (s.SecretKey == ""):
		return invalid("an access key and a secret key belong together")
	}
	setDefault(&s.PartSize, 16<<20)
	setDefault(&s.Timeout, 5*time.Second)
	setDefault(&s.Connections, 16)
	setDefault(&s.MaxBytesInFlight, 256<<20)
	setDefault(&s.Failures, 3)
	setDefault(&s.Retry, time.Second)
	return nil
}

func setDefault[T comparable](v *T, otherwise T) {
	var zero T
	if *v == zero {
		*v = otherwise
	}
}

// limited gives one round trip its time limit. hurried reports that the deadline of the caller is earlier:
// missing that one says nothing about the store.
func (s *settings) limited(ctx context.Context, bytes int64) (_ context.Context, cancel func(), hurried bool) {
	end := time.Now().Add(s.Timeout + time.Duration(float64(bytes)/(32<<20)*float64(time.Second)))
	if at, ok := ctx.Deadline(); ok && at.Before(end) {
		return ctx, func() {}, true
	}
	ctx, cancel = context.WithDeadline(ctx, end)
	return ctx, cancel, false
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("tier/s3: %s: %w", fmt.Sprintf(format, args...), fs.ErrInvalid)
}
