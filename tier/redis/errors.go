package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/internal/remote"
)

// answers are the beginnings of a server's errors, what they mean, and what to do.
var answers = []struct {
	begin string
	is    error
	hint  string
}{
	{"OOM", tier.ErrFull, "the server has reached maxmemory and evicts nothing: set maxmemory-policy to allkeys-lru, or raise maxmemory"},
	{"NOAUTH", fs.ErrPermission, "the server wants a password: set Options.Password"},
	{"WRONGPASS", fs.ErrPermission, "check Options.User and Options.Password"},
	{"ERR invalid password", fs.ErrPermission, "check Options.Password"},
	{"ERR AUTH", fs.ErrPermission, "the server has no password, so leave out Options.Password"},
	{"ERR Client sent AUTH", fs.ErrPermission, "the server has no password, so leave out Options.Password"},
	{"NOPERM", fs.ErrPermission, "the ACL of Options.User does not allow what the page of package tier/redis lists"},
	{"DENIED", fs.ErrPermission, "the server is in protected mode: give it a password"},
	{"LOADING", nil, "the server is reading its data from disk, and will answer later"},
	{"READONLY", nil, "this is a replica: name the master, or the Sentinels"},
	{"MASTERDOWN", nil, "this is a replica, and its master is down: wait for the failover, or start the master"},
	{"CLUSTERDOWN", nil, "a part of the cluster has no server: see CLUSTER INFO"},
	{"MISCONF", nil, "the server can't write its data to disk, and refuses changes: see its log"},
	{"NOREPLICAS", nil, "the server wants more replicas: see min-replicas-to-write"},
	{"MOVED", nil, "the cluster is moving its slots, or the URL is not redis+cluster://"},
	{"ERR This instance has cluster support disabled", fs.ErrInvalid, "this is no cluster: write redis:// in the URL"},
	{"ERR max number of clients", nil,
		"the server has too many connections: raise maxclients, or lower Options.Connections"},
	{"ERR Protocol error: invalid bulk length", tier.ErrTooLarge, "the server's proto-max-bulk-len is less"},
	{"ERR string exceeds maximum", tier.ErrTooLarge, "the server's proto-max-bulk-len is less"},
	{"ERR DB index", fs.ErrInvalid, "the server has fewer databases: name a lower one, or raise databases"},
}

// explain turns an error of the client into one of package tier, with what to do.
func explain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ended := remote.EndOf(ctx); ended != nil {
		return ended
	}
	var answer goredis.Error
	if errors.As(err, &answer) {
		text := answer.Error()
		for _, a := range answers {
			if !strings.HasPrefix(text, a.begin) {
				continue
			}
			switch a.is {
			case tier.ErrFull, tier.ErrTooLarge:
				return fmt.Errorf("tier/redis: %w: %w (%s)", a.is, err, a.hint)
			case nil:
				return fmt.Errorf("tier/redis: %w: %w (%s)", tier.ErrUnavailable, err, a.hint)
			}
			return fmt.Errorf("tier/redis: %w: %w: %w (%s)", tier.ErrUnavailable, a.is, err, a.hint)
		}
	}
	var untrusted *tls.CertificateVerificationError
	var noTLS tls.RecordHeaderError
	switch {
	case errors.As(err, &untrusted):
		return fmt.Errorf("tier/redis: %w: %w: %w (name the authority, as ca in the URL or in Options.TLS)",
			tier.ErrUnavailable, fs.ErrPermission, err)
	case errors.As(err, &noTLS):
		return fmt.Errorf("tier/redis: %w: %w: %w (the port is not one for TLS)", tier.ErrUnavailable, fs.ErrInvalid,
			err)
	}
	return fmt.Errorf("tier/redis: %w: %w", tier.ErrUnavailable, err)
}

// isWrongType reports whether the key has a value that isn't bytes.
func isWrongType(err error) bool { return goredis.HasErrorPrefix(err, "WRONGTYPE") }
