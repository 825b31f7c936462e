package client

import (
	"context"

	"github.com/ringcache/ringcache/daemon/wire"
)

// Pin looks names up and keeps them in place, see [wire.Pin]. The request has Lease, Names, Space, Seconds,
// Prefix and Trace.
func (c *Client) Pin(ctx context.Context, q wire.Request) ([]wire.Item, error) {
	return c.items(ctx, wire.Pin, q)
}

// Get returns where the objects of a lease are, see [wire.Get]. The request has Lease, Space, Names and
// Trace.
func (c *Client) Get(ctx context.Context, q wire.Request) ([]wire.Item, error) {
	return c.items(ctx, wire.Get, q)
}

// Reserve takes room for objects, see [wire.Reserve]. The request has Lease, Space, Objects,
// Seconds and Trace.
func (c *Client) Reserve(ctx context.Context, q wire.Request) ([]wire.Item, error) {
	return c.items(ctx, wire.Reserve, q)
}

// Commit publishes what was reserved, see [wire.Commit]. The request has Lease, Space, Names, Keep,
// Seconds and Trace.
func (c *Client) Commit(ctx context.Context, q wire.Request) ([]wire.Item, error) {
	return c.items(ctx, wire.Commit, q)
}

// Abort gives up what was reserved, see [wire.Abort]. The request has Lease, Space and Names.
func (c *Client) Abort(ctx context.Context, q wire.Request) ([]wire.Item, error) {
	return c.items(ctx, wire.Abort, q)
}

// Release ends leases, or pins of names, see [wire.Release]. The request has Leases, or Lease, Space and
// Names.
func (c *Client) Release(ctx context.Context, q wire.Request) error {
	_, err := c.items(ctx, wire.Release, q)
	return err
}

// Stat describes the daemon, see [wire.Stat]. The request has Names and Space, and List.
func (c *Client) Stat(ctx context.Context, q wire.Request) (*wire.Reply, error) {
	q.Op = wire.Stat
	p := &wire.Reply{}
	if err := c.Do(ctx, &q, p); err != nil {
		return nil, err
	}
	return p, nil
}

// Clear deletes the objects of a space, or all if it is empty, see [wire.Clear].
func (c *Client) Clear(ctx context.Context, space string) error {
	_, err := c.items(ctx, wire.Clear, wire.Request{Space: space})
	return err
}

func (c *Client) items(ctx context.Context, op wire.Op, q wire.Request) ([]wire.Item, error) {
	q.Op = op
	var p wire.Reply
	if err := c.Do(ctx, &q, &p); err != nil {
		return nil, err
	}
	return p.Items, nil
}
