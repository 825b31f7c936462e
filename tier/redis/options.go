package redis

import (
	"context"
	"crypto/tls"
	"fmt"
	"io/fs"
	"strings"
	"time"
)

// Options say where the objects are. The zero value is a server without a password on this machine.
type Options struct {
	// URL is the address. Default redis://127.0.0.1:6379. The forms are
	//
	//	redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]
	//	unix://[USER:PASSWORD@]/PATH/TO/SOCKET
	//	redis+cluster://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT]...
	//	redis+sentinel://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT].../MASTER[/DATABASE]
	//
	// rediss in the place of redis is TLS; valkey and valkeys are other names. Parameters, after a question
	// mark, set options for which there is only a text: layout (objects, lmcache, resp), space (of
	// the layouts of LMCache), size (of RESP), prefix, ttl, timeout, db, and for TLS the files ca, cert and
	// key. A field below that is set has precedence.
	URL string
	// User and Password are of an ACL; a Password without a User is that of requirepass.
	User, Password string
	// SentinelUser and SentinelPassword are for the Sentinels.
	SentinelUser, SentinelPassword string
	// TLS, if not nil, is used for every connection. An empty ServerName is the host of each address.
	TLS *tls.Config

	// Layout is what is where. Default Objects.
	Layout Layout
	// Prefix is in front of every key. Default "ringcache:", and none in the layouts of LMCache, where it would
	// hide the keys from LMCache. In Objects no other program may use keys that begin with it and continue as an
	// object's do: a value there that is not an object is damaged, and is removed when its name is looked up.
	// Without a prefix the level sees the keys of all programs: the layouts of LMCache do not touch what LMCache
	// would not have written, see there.
	Prefix string
	// TTL, if not 0, is how long an object stays after it was put. At least a millisecond.
	TTL time.Duration

	// Timeout is the limit of a round trip, and of making a connection. A second is added for every 32 MiB
	// that the round trip moves. Default 1 second.
	Timeout time.Duration
	// Connections is the most calls at a time, each with one connection to a server. Others wait. Default 16.
	Connections int
	// MaxBytesInFlight is the most bytes of objects that are being transferred at a time, and of memory for
	// them. A larger object is transferred alone. A Get with To keeps 4 MiB of an object in memory, and all
	// of it in the layouts of LMCache. Default 256 MiB.
	MaxBytesInFlight int64
	// Failures is the number of round trips that fail in a row before a server is down, see the page of the
	// package. Default 1.
	Failures int
	// Retry is the time between two PINGs to a server that is down. Default 1 second.
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

func (o Options) resolve() (settings, error) {
	s := settings{Options: o}
	if o.URL == "" {
		s.URL = "redis://127.0.0.1:6379"
	}
	parameters, err := s.parse(s.URL)
	if err == nil {
		err = s.apply(parameters)
	}
	if err == nil {
		err = s.check()
	}
	return s, err
}

// check gives what is not set its default.
func (s *settings) check() error {
	switch {
	case s.TTL < 0 || s.TTL > 0 && s.TTL < time.Millisecond:
		return invalid("the time to live %v is not 0, and less than a millisecond", s.TTL)
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
	case len(s.Prefix) > maxPrefix:
		return invalid("a prefix of %d bytes, the most is %d", len(s.Prefix), maxPrefix)
	case strings.IndexByte(s.Prefix, 0) >= 0:
		return invalid("the prefix %q contains a zero byte", s.Prefix)
	}
	if s.Layout == nil {
		s.Layout = Objects{}
	}
	if err := s.Layout.check(); err != nil {
		return err
	}
	if _, own := s.Layout.(Objects); own && s.Prefix == "" {
		s.Prefix = "ringcache:"
	}
	setDefault(&s.Timeout, time.Second)
	setDefault(&s.Connections, 16)
	setDefault(&s.MaxBytesInFlight, 256<<20)
	setDefault(&s.Failures, 1)
	setDefault(&s.Retry, time.Second)
	return nil
}

const maxPrefix = 255

func setDefault[T comparable](v *T, otherwise T) {
	var zero T
	if *v == zero {
		*v = otherwise
	}
}

// limit is how long a round trip may take that moves so many bytes.
func (s *settings) limit(bytes int64) time.Duration {
	return s.Timeout + time.Duration(float64(bytes)/(32<<20)*float64(time.Second))
}

// limited gives one round trip its time limit. If the deadline of the caller is earlier, the context is
// marked: missing that deadline is not a failure of the server.
func (s *settings) limited(ctx context.Context, bytes int64) (context.Context, context.CancelFunc) {
	ctx = mark(ctx, limitedMark{})
	end := time.Now().Add(s.limit(bytes))
	if at, ok := ctx.Deadline(); ok && at.Before(end) {
		return mark(ctx, callerDeadlineMark{}), func() {}
	}
	return context.WithDeadline(ctx, end)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("tier/redis: %s: %w", fmt.Sprintf(format, args...), fs.ErrInvalid)
}
