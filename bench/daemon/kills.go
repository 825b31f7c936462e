package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ringcache/ringcache/daemon/client"
	"github.com/ringcache/ringcache/daemon/wire"
)

// kills ends the daemon by SIGKILL again and again, starts the next one at once, and measures the time until
// a client that knows nothing of that has its next hit, of an object that its lease has had all the time.
// Then all objects are looked for.
func kills(ctx context.Context, b *bed, r *results) error {
	// What was stored while being timed has pushed others out.
	if err := fillAgain(ctx, b); err != nil {
		return err
	}
	c, err := b.dial(ctx, "")
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	m, err := c.Map(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = m.Close() }()
	const held = 20 // leases, of 64 objects each, and a reservation in each
	pins := map[string][]wire.Item{}
	for i := range held {
		lease := fmt.Sprint("held ", i)
		pins[lease], err = c.Pin(ctx, wire.Request{Lease: lease, Space: space,
			Names: names(i*perCall, perCall, b.o.Objects), Seconds: 3600})
		if err := all(pins[lease], err, wire.StatusHit); err != nil {
			return err
		}
		items, err := c.Reserve(ctx, wire.Request{Lease: lease, Space: space,
			Objects: []wire.Object{{Name: "reserved " + lease, Size: 4096}}})
		if err := all(items, err, wire.StatusReserved); err != nil {
			return err
		}
	}
	for range b.o.Kills {
		began := time.Now()
		b.daemon.kill()
		if b.daemon, err = b.start(serveRole); err != nil {
			return err
		}
		var items []wire.Item
		for {
			items, err = c.Pin(ctx, wire.Request{Lease: "held 7", Space: space,
				Names: names(7*perCall, perCall, b.o.Objects), Seconds: 3600})
			if err == nil || ctx.Err() != nil {
				break
			}
			if time.Since(began) > time.Minute {
				return fmt.Errorf("no answer for a minute: %w", err)
			}
			time.Sleep(time.Millisecond)
		}
		took := time.Since(began)
		if err := all(items, err, wire.StatusHit); err != nil {
			return err
		}
		r.restarts = append(r.restarts, took.Seconds())
		for i, v := range items {
			if v.Offset != pins["held 7"][i].Offset {
				return fmt.Errorf("object %d has moved", i)
			}
			if bytes, err := m.Bytes(v); err != nil || !same(bytes, 7*perCall+i) {
				return errors.Join(fmt.Errorf("object %d has other bytes", i), err)
			}
		}
		if _, err := b.daemon.taken(); err != nil {
			return err
		}
	}
	for lease := range pins {
		items, err := c.Commit(ctx, wire.Request{Lease: lease, Space: space, Names: []string{"reserved " + lease}})
		if err := all(items, err, wire.StatusOK); err != nil {
			return fmt.Errorf("what was reserved before %d kills: %w", b.o.Kills, err)
		}
	}
	return count(ctx, b, c, m, r)
}

// fillAgain stores what is not there any more.
func fillAgain(ctx context.Context, b *bed) error {
	c, err := b.dial(ctx, "")
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	if err := c.Clear(ctx, space); err != nil {
		return err
	}
	for {
		p, err := c.Stat(ctx, wire.Request{})
		if err != nil {
			return err
		}
		if !p.State.Clearing {
			return fill(ctx, b)
		}
		time.Sleep(time.Millisecond)
	}
}

// count looks for all objects, and compares all their bytes.
func count(ctx context.Context, b *bed, c *client.Client, m *client.Mapping, r *results) error {
	for first := 0; first < b.o.Objects; first += perCall {
		q := wire.Request{Lease: "count", Space: space,
			Names: names(first, min(perCall, b.o.Objects-first), b.o.Objects)}
		items, err := c.Pin(ctx, q)
		if err != nil {
			return err
		}
		for i, v := range items {
			if v.Status != wire.StatusHit {
				continue
			}
			if bytes, err := m.Bytes(v); err != nil || !same(bytes, first+i) {
				return errors.Join(fmt.Errorf("object %d has other bytes", first+i), err)
			}
			r.found++
		}
		if err := c.Release(ctx, wire.Request{Leases: []string{"count"}}); err != nil {
			return err
		}
	}
	return nil
}
