package sessionless

import (
	"github.com/ringcache/ringcache/daemon/internal/process"
	"github.com/ringcache/ringcache/tier"
)

// Pins are what a protocol pins for all of its connections together, under a session of its own: what a client was told
// is there, and asks for on another connection. One goroutine at a time may use them.
type Pins struct{ conn *Conn }

// Pins opens the session. It needs a Close.
func (p *Protocol) Pins() (*Pins, error) {
	client, err := p.o.Registry.Enter(process.Unknown())
	if err != nil {
		return nil, err
	}
	c, err := p.join(client, func() {}) // there is no connection to end
	if err != nil {
		return nil, err
	}
	return &Pins{c}, nil
}

// Pin pins values that are in memory.
func (p *Pins) Pin(keys []tier.Key) []tier.Placed { return (*holder)(p.conn).Pin(keys) }

// Unpin gives pins up.
func (p *Pins) Unpin(keys []tier.Key) { (*holder)(p.conn).Unpin(keys) }

// Close ends the session.
func (p *Pins) Close() { p.conn.leave() }
