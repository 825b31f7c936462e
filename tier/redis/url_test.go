package redis

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestURL(t *testing.T) {
	for text, want := range map[string]target{
		"":                          {network: "tcp", addrs: []string{"127.0.0.1:6379"}},
		"redis://":                  {network: "tcp", addrs: []string{"127.0.0.1:6379"}},
		"redis://host":              {network: "tcp", addrs: []string{"host:6379"}},
		"valkey://host:1/":          {network: "tcp", addrs: []string{"host:1"}},
		"REDIS://[::1]":             {network: "tcp", addrs: []string{"[::1]:6379"}},
		"redis://[::1]:7":           {network: "tcp", addrs: []string{"[::1]:7"}},
		"redis://u:p@host/15":       {network: "tcp", addrs: []string{"host:6379"}, database: 15},
		"redis://host?db=3":         {network: "tcp", addrs: []string{"host:6379"}, database: 3},
		"rediss://host":             {network: "tcp", addrs: []string{"host:6379"}, secure: true},
		"valkeys+cluster://a,b:2":   {network: "tcp", addrs: []string{"a:6379", "b:2"}, cluster: true, secure: true},
		"redis+sentinel://a,b:2/m":  {network: "tcp", addrs: []string{"a:26379", "b:2"}, master: "m"},
		"redis+sentinel://a/m%2f/4": {network: "tcp", addrs: []string{"a:26379"}, master: "m/", database: 4},
		"unix:///run/r.sock":        {network: "unix", addrs: []string{"/run/r.sock"}},
		"unix://u:p@/a%20b?db=2":    {network: "unix", addrs: []string{"/a b"}, database: 2},
	} {
		s, err := Options{URL: text}.resolve()
		require.NoError(t, err, text)
		require.Equal(t, want, s.target, text)
		require.Equal(t, want.secure, s.TLS != nil, text)
		require.Equal(t, strings.Contains(text, "@"), s.Password == "p" && s.User == "u", text)
	}
	s, err := Options{URL: "redis://a%40b:c%2F%3Ad@host?layout=resp&size=7&space=s&prefix=x&ttl=3s&timeout=9ms"}.resolve()
	require.NoError(t, err)
	require.Equal(t, "a@b", s.User)
	require.Equal(t, "c/:d", s.Password)
	require.Equal(t, RESP{Space: "s", Size: 7}, s.Layout)
	require.Equal(t, "x", s.Prefix)
	require.Equal(t, 3*time.Second, s.TTL)
	require.Equal(t, 9*time.Millisecond, s.Timeout)
	s, err = Options{URL: "redis://u:p@host?prefix=x&ttl=3s&layout=lmcache", User: "v", Password: "q", Prefix: "y",
		TTL: time.Hour, Layout: Objects{}}.resolve()
	require.NoError(t, err)
	require.Equal(t, []any{"v", "q", "y", time.Hour, Objects{}}, []any{s.User, s.Password, s.Prefix, s.TTL, s.Layout})
	s, err = Options{URL: "redis://h?layout=lmcache"}.resolve()
	require.NoError(t, err)
	require.Empty(t, s.Prefix, "LMCache has none")
}

// What is wrong is refused, without the password.
func TestWrongURL(t *testing.T) {
	for _, text := range []string{
		"host:6379", "http://host", "redis+x://host", "unix+cluster:///s", "redis://a,b", "redis://host:0",
		"redis://host:99999", "redis://host:x", "redis://a:b:c",
		"redis://host/x", "redis://host/-1", "redis+cluster://a/1", "redis+sentinel://a", "redis+sentinel://a/",
		"unix://relative", "unix://",
		"redis://host?nothing=1", "redis://host?db=x", "redis://host?ttl=x", "redis://host?ttl=-1s",
		"redis://host?ttl=1us", "redis://host?ttl=1s&ttl=2s",
		"redis://host?layout=x", "redis://host?size=3", "redis://host?layout=resp&size=0", "redis://host?space=x",
		"redis://host?%zz",
		"redis://host?ca=/x", "redis://host?layout=lmcache&space=%00", "redis://host?prefix=%00",
		"redis://host?prefix=" + strings.Repeat("x", 256),
		"redis://user:hidden%zz@host", "redis://user:hid/den@host", "redis://user:hid?den@host",
		"redis://:hidden@host:hidden",
	} {
		err := Options{URL: text}.Validate()
		require.ErrorIs(t, err, fs.ErrInvalid, text)
		require.NotContains(t, err.Error(), "hid", text)
		require.NotContains(t, err.Error(), "den", text)
	}
	for _, text := range []string{"redis://host:x", "redis+cluster://a,b:0"} {
		require.ErrorContains(t, Options{URL: text}.Validate(), fmt.Sprintf("address %d ", strings.Count(text, ",")+1))
	}
	require.ErrorIs(t, Options{URL: "rediss://host?ca=/nowhere"}.Validate(), fs.ErrNotExist)
	require.ErrorIs(t, Options{URL: "rediss://host?cert=/nowhere"}.Validate(), fs.ErrNotExist)
	for _, o := range []Options{{TTL: -1}, {TTL: 1}, {Timeout: -1}, {Connections: -1}, {MaxBytesInFlight: -1},
		{Failures: -1}, {Retry: -1}, {Layout: RESP{Size: -1}}, {Layout: LMCache{Space: strings.Repeat("x", 300)}}} {
		require.ErrorIs(t, o.Validate(), fs.ErrInvalid)
	}
	require.NoError(t, Options{}.Validate())
}

// A password stands where something else is lookup for, and the error does not repeat it.
func TestErrorsDoNotRepeatSecrets(t *testing.T) {
	for _, text := range []string{
		"redis://u:secret:6379", "redis://:secret", "redis://u:secret", "redis://u:x/secret", "redis://u:1/secret",
		"redis://u:secret/1", "redis://[secret:1",
		"redis+cluster://a,u:secret:1", "redis+sentinel://u:secret:1/m", "redis+sentinel://h/m/secret",
		"unix://u:secret/path", "unix+secret:///path",
		"redis://u:x?secret", "redis://u:x?secret=1", "redis://u:x%secret@host", "u:secret://host",
		"redis+secret://host", "secret",
		"redis://u:a@secret@host", "redis://host?db=secret",
	} {
		err := Options{URL: text}.Validate()
		require.ErrorIs(t, err, fs.ErrInvalid, text)
		require.NotContains(t, err.Error(), "secret", text)
	}
}

// User and password stand once. What is behind a second @ would become a part of the password, which every
// server is given.
func TestUserOfEachAddress(t *testing.T) {
	for _, text := range []string{"redis+cluster://u:p1@h1,u:p2@h2", "redis+sentinel://u:p1@h1,u:p2@h2/m",
		"redis://u:p@q@h", "unix://u:p@q@/s"} {
		err := Options{URL: text}.Validate()
		require.ErrorIs(t, err, fs.ErrInvalid, text)
		require.ErrorContains(t, err, "@ as %40", text)
	}
	s, err := Options{URL: "redis+cluster://u:p%40q@h1,h2"}.resolve()
	require.NoError(t, err)
	require.Equal(t, "p@q", s.Password)
}
