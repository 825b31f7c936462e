package main

import (
	"math/rand/v2"
)

// client is one goroutine, with the requests that it has under way.
type client struct {
	*load
	rng    *rand.Rand
	window []*call
}

func (c *client) run(n int) error {
	for range n {
		if err := c.interfere(); err != nil {
			return err
		}
		k := &call{uses: randomUses(c.rng), answer: make(chan answer, 1)}
		sent, err := c.submit(k)
		if err != nil {
			return err
		}
		if sent {
			c.window = append(c.window, k)
		}
		if len(c.window) == c.Window {
			if err := c.settle(); err != nil {
				return err
			}
		}
	}
	for len(c.window) > 0 {
		if err := c.settle(); err != nil {
			return err
		}
	}
	return nil
}

// interfere does what happens between requests.
func (c *client) interfere() error {
	unreliable := c.link.unreliable.Load()
	switch x := c.rng.IntN(2000); {
	case x < 2:
		return c.clear()
	case x < 4 && unreliable:
		c.report.count(func(c *counts) { c.Restarts++ })
		return c.link.post(&call{answer: make(chan answer, 1)}, request{Op: opForget})
	case x < 60 && !unreliable:
		// Other data under the same key is for a link that loses nothing: if it
		// got lost, vLLM would have no way to notice that its data is old.
		c.renew(use{number: c.rng.IntN(worldItems)})
	}
	return nil
}

// settle sees the oldest request of the window to its end.
func (c *client) settle() error {
	k := c.window[0]
	c.window = c.window[1:]
	for {
		var a answer
		select {
		case a = <-k.answer:
		case <-c.link.dead:
			return c.link.err
		}
		again := a.lost // the client's patience ended
		if len(a.Missing) > 0 {
			c.report.count(func(c *counts) {
				if c.Misses++; k.misses > 0 {
					c.MissedAgain++
				}
			})
			c.sender.Missed(k.ticket.Envelope, a.Missing)
			k.misses++
			again = c.Mode == "faults" && k.misses < 3
		}
		if !again {
			c.check(k, a)
			return nil
		}
		for i := range k.uses {
			k.uses[i].have = true
		}
		c.report.count(func(c *counts) { c.Resends++ })
		if _, err := c.submit(k); err != nil {
			return err
		}
	}
}
