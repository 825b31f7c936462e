//go:build linux

package main

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/redistest"
	"github.com/ringcache/ringcache/tier"
)

// TestTierCommandOfAStrangeRedis: the command says what to do about a server whose answers can't be right.
func TestTierCommandOfAStrangeRedis(t *testing.T) {
	for _, answer := range []string{"$9223372036854775807\r\n", "%1073741824\r\n", "HTTP/1.1 400 Bad Request\r\n"} {
		f := redistest.NewFake(t)
		f.Do(func(conn io.Writer, _ []string, _ []byte) error {
			_, err := io.WriteString(conn, answer)
			return err
		})
		_, err := run(t, "tier", "ls", "redis://"+f.Addr())
		require.ErrorIs(t, err, tier.ErrUnavailable)
		require.ErrorContains(t, err, "check that the address is that of a Redis or Valkey server")
	}
}
