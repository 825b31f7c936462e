package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"

	"github.com/ringcache/ringcache/daemon/internal/sessionless"
	"github.com/ringcache/ringcache/lmcache/resp"

	"github.com/ringcache/ringcache/internal/passwordfile"
)

// respServer returns a server for clients of Redis. How many connections there may be is the registry's matter.
func respServer(r *runner, p *sessionless.Protocol) (protocolServer, error) {
	password, err := respSecret(r.config)
	if err != nil {
		return nil, err
	}
	pins, err := p.Pins()
	if err != nil {
		return nil, fmt.Errorf("resp: %w", err)
	}
	s, err := resp.NewServer(resp.Options{
		Store: r.levels.store, Space: resp.Space, Pins: pins,
		Open: func(raw net.Conn, end func()) (resp.Store, error) { return p.Enter(raw, end) },
		User: r.config.RESPUser, Password: password.reveal(), Flush: r.config.RESPFlush,
		MaxConnections: math.MaxInt, Logger: r.log,
	})
	if err != nil {
		pins.Close()
		return nil, errors.Join(err, fs.ErrInvalid)
	}
	return s, nil
}

// respSecret returns the password for clients of Redis, if there is one.
func respSecret(c Config) (secret, error) {
	if c.RESPPasswordFile == "" {
		return c.respPassword, nil
	}
	text, err := passwordfile.Read(c.RESPPasswordFile)
	return secretOf(text), err
}
