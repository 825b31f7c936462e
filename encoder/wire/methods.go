package wire

import "context"

// Pin looks names up and keeps them in place, see [Pin]. The request has Lease, Names, Space, Seconds and Prefix.
func (c *Client) Pin(ctx context.Context, q Request) ([]Item, error) { return c.items(ctx, Pin, q) }

// Get returns where the objects of a lease are, see [Get]. The request has Lease, Space and Names.
func (c *Client) Get(ctx context.Context, q Request) ([]Item, error) { return c.items(ctx, Get, q) }

// Reserve takes room for objects, see [Reserve]. The request has Lease, Space, Objects and Seconds.
func (c *Client) Reserve(ctx context.Context, q Request) ([]Item, error) {
	return c.items(ctx, Reserve, q)
}

// Commit publishes what was reserved, see [Commit]. The request has Lease, Space, Names, Keep and Seconds.
func (c *Client) Commit(ctx context.Context, q Request) ([]Item, error) {
	return c.items(ctx, Commit, q)
}

// Abort gives up what was reserved, see [Abort]. The request has Lease, Space and Names.
func (c *Client) Abort(ctx context.Context, q Request) ([]Item, error) { return c.items(ctx, Abort, q) }

// Release ends leases, or pins of names, see [Release]. The request has Leases, or Lease, Space and Names.
func (c *Client) Release(ctx context.Context, q Request) error {
	_, err := c.items(ctx, Release, q)
	return err
}

// Stat describes the daemon, see [Stat]. The request has Names and Space, and List.
func (c *Client) Stat(ctx context.Context, q Request) (*Reply, error) {
	q.Op = Stat
	p := &Reply{}
	if err := c.Do(ctx, &q, p); err != nil {
		return nil, err
	}
	return p, nil
}

// Clear deletes the objects of a space, or all if it is empty, see [Clear].
func (c *Client) Clear(ctx context.Context, space string) error {
	_, err := c.items(ctx, Clear, Request{Space: space})
	return err
}

func (c *Client) items(ctx context.Context, op Op, q Request) ([]Item, error) {
	q.Op = op
	var p Reply
	if err := c.Do(ctx, &q, &p); err != nil {
		return nil, err
	}
	return p.Items, nil
}
