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

// valueProtocol is a protocol whose clients get and put whole values, as a setting names its addresses.
type valueProtocol struct {
	key       string // of the setting, and the name of the protocol in the registry
	space     string // of its values
	addresses []string
	server    func(r *runner, p *sessionless.Protocol) (protocolServer, error)
}

// valueProtocols are these protocols.
func (c Config) valueProtocols() []valueProtocol {
	return []valueProtocol{{"lm", lm.Space, c.LM, lmServer}, {"resp", resp.Space, c.RESP, respServer}}
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

// valueService serves such a protocol.
type valueService struct {
	listening
	protocol *sessionless.Protocol
	server   protocolServer
}

// openValues opens those of these protocols that are configured.
func (r *runner) openValues(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			r.shutdownValues(ctx) // nobody is served yet, so it does not wait
			err = errors.Join(err, r.closeValues())
		}
	}()
	for _, x := range r.config.valueProtocols() {
		if len(x.addresses) == 0 {
			continue
		}
		s := &valueService{listening: listening{key: x.key}}
		s.protocol = sessionless.New(sessionless.Options{
			Name: x.key, Space: x.space, Registry: r.registry, Rooms: r.rooms, Store: r.levels.store, Logger: r.log,
		})
		if s.server, err = x.server(r, s.protocol); err != nil {
			return err
		}
		r.values = append(r.values, s)
		for _, text := range x.addresses {
			network, address, err := parseValueAddress(text, r.config.ValuesAny)
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

// checkValues reports that clients can't find a socket any more.
func (r *runner) checkValues() error {
	var errs []error
	for _, s := range r.values {
		errs = append(errs, s.check())
	}
	return errors.Join(errs...)
}

// shutdownValues lets what is under way end, until ctx ends.
func (r *runner) shutdownValues(ctx context.Context) {
	var all sync.WaitGroup
	for _, s := range r.values {
		all.Go(func() { s.server.Shutdown(ctx) })
	}
	all.Wait()
}

// closeValues closes what is open, and removes sockets.
func (r *runner) closeValues() error {
	var errs []error
	for _, s := range r.values {
		errs = append(errs, s.close())
	}
	return errors.Join(errs...)
}

// Metrics of these protocols, which have the name of the setting as a label.
var (
	mValueOpen = gauge("value_connections",
		"Connections of clients that get and put whole values.", "protocol")
	mValueAccepted = counter("value_connections_accepted_total",
		"Connections of such clients that were accepted.", "protocol")
	mValueRefused = counter("value_connections_refused_total",
		"Connections of such clients that were closed at once.", "protocol")
	mValueResults = counter("values_total",
		"Values of such clients: hit, miss, stored, and dropped: without room, or cut short.", "protocol", "result")
)

// collectValues collects what clients of these protocols do.
func (r *runner) collectValues(send func(m metric, v float64, labels ...string)) {
	for _, s := range r.values {
		n := s.protocol.Counts()
		send(mValueOpen, float64(n.Connections), s.key)
		send(mValueAccepted, float64(n.Accepted), s.key)
		send(mValueRefused, float64(n.Refused), s.key)
		send(mValueResults, float64(n.Hits), s.key, "hit")
		send(mValueResults, float64(n.Misses), s.key, "miss")
		send(mValueResults, float64(n.Stored), s.key, "stored")
		send(mValueResults, float64(n.Dropped), s.key, "dropped")
	}
}
