package daemon

import (
	"context"
	"errors"
	"math"
	"net"
	"sync"

	"github.com/ringcache/ringcache/daemon/internal/sessionless"
	"github.com/ringcache/ringcache/lmcache/lm"
	"github.com/ringcache/ringcache/lmcache/resp"
)

// plainProtocol is a protocol whose clients get and put whole values, as a setting names its addresses.
type plainProtocol struct {
	key       string // of the setting, and the name of the protocol in the registry
	space     string // of its values
	addresses []string
	server    func(r *runner, p *sessionless.Protocol) (protocolServer, error)
}

// plain are these protocols.
func (c Config) plain() []plainProtocol {
	return []plainProtocol{{"lm", lm.Space, c.LM, lmServer}, {"resp", resp.Space, c.RESP, respServer}}
}

// lmServer returns a server of lm://. How many connections there may be is the registry's matter.
func lmServer(r *runner, p *sessionless.Protocol) (protocolServer, error) {
	o := lm.Options{
		Open:           func(raw net.Conn, end func()) (lm.Store, error) { return p.Enter(raw, end) },
		MaxConnections: math.MaxInt, Logger: r.log,
	}
	if r.config.LMFrom != "" {
		o.From = &lm.ClientOptions{Address: r.config.LMFrom, MaxValue: min(r.config.Size, 1<<30)}
	}
	return lm.NewServer(o)
}

// plainService serves such a protocol.
type plainService struct {
	listening
	protocol *sessionless.Protocol
	server   protocolServer
}

// openPlain opens those of these protocols that are configured.
func (r *runner) openPlain(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			r.shutdownPlain(ctx) // nobody is served yet, so it does not wait
			err = errors.Join(err, r.closePlain())
		}
	}()
	for _, x := range r.config.plain() {
		if len(x.addresses) == 0 {
			continue
		}
		s := &plainService{listening: listening{key: x.key}}
		s.protocol = sessionless.New(sessionless.Options{
			Name: x.key, Space: x.space, Registry: r.registry, Rooms: r.rooms, Store: r.levels.store, Logger: r.log,
		})
		if s.server, err = x.server(r, s.protocol); err != nil {
			return err
		}
		r.plain = append(r.plain, s)
		for _, text := range x.addresses {
			network, address, err := parsePlain(text, r.config.ValuesAny)
			if err == nil {
				err = s.listen(ctx, network, address, s.server)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// checkPlain reports that clients can't find a socket any more.
func (r *runner) checkPlain() error {
	var errs []error
	for _, s := range r.plain {
		errs = append(errs, s.check())
	}
	return errors.Join(errs...)
}

// shutdownPlain lets what is under way end, until ctx ends.
func (r *runner) shutdownPlain(ctx context.Context) {
	var all sync.WaitGroup
	for _, s := range r.plain {
		all.Go(func() { s.server.Shutdown(ctx) })
	}
	all.Wait()
}

// closePlain closes what is open, and removes sockets.
func (r *runner) closePlain() error {
	var errs []error
	for _, s := range r.plain {
		errs = append(errs, s.close())
	}
	return errors.Join(errs...)
}

// Metrics of these protocols, which have the name of the setting as a label.
var (
	mPlainOpen = gauge("value_connections",
		"Connections of clients that get and put whole values.", "protocol")
	mPlainAccepted = counter("value_connections_accepted_total",
		"Connections of such clients that were accepted.", "protocol")
	mPlainRefused = counter("value_connections_refused_total",
		"Connections of such clients that were closed at once.", "protocol")
	mPlainValues = counter("values_total",
		"Values of such clients: hit, miss, stored, and dropped: without room, or cut short.", "protocol", "result")
)

// collectPlain collects what clients of these protocols do.
func (r *runner) collectPlain(send func(m metric, v float64, labels ...string)) {
	for _, s := range r.plain {
		n := s.protocol.Counts()
		send(mPlainOpen, float64(n.Connections), s.key)
		send(mPlainAccepted, float64(n.Accepted), s.key)
		send(mPlainRefused, float64(n.Refused), s.key)
		send(mPlainValues, float64(n.Hits), s.key, "hit")
		send(mPlainValues, float64(n.Misses), s.key, "miss")
		send(mPlainValues, float64(n.Stored), s.key, "stored")
		send(mPlainValues, float64(n.Dropped), s.key, "dropped")
	}
}
