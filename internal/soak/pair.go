package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"time"
)

// pair is the part with the two ends of package lrusync, a child each. Only its loop uses its fields.
type pair struct {
	s           *supervisor
	firstAnswer func() // called when a request was answered
	rng         *rand.Rand
	children    map[string]*process // by role
	events      chan event
	ending      bool
}

func (p *pair) run(ctx, stopping context.Context) error {
	p.children, p.events = map[string]*process{}, make(chan event)
	err := errors.Join(p.start("receiver"), p.start("sender"))
	if err == nil {
		err = p.loop(ctx, stopping)
	}
	for _, c := range p.children {
		c.kill()
	}
	for len(p.children) > 0 {
		if e := <-p.events; e.m == nil {
			delete(p.children, e.from.role)
			p.s.logs(e.from)
		}
	}
	return err
}

func (p *pair) start(role string) error {
	args := []string{"--link", filepath.Join(p.s.dir, "pair"), "--seed", strconv.FormatUint(p.rng.Uint64(), 10)}
	c, err := p.s.startChild("mirror", role, 0, storeOptions{}, args, p.events)
	if err == nil {
		p.children[role] = c
	}
	return err
}

func (p *pair) loop(ctx, stopping context.Context) error {
	stop := stopping.Done()
	check, kill := time.NewTicker(p.s.interval), time.NewTimer(time.Second)
	defer check.Stop()
	defer kill.Stop()
	hang := time.NewTimer(hangTime)
	defer hang.Stop()
	for len(p.children) > 0 {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-stop:
			stop = nil
			p.end()
		case <-check.C:
			for _, c := range p.children {
				if c.ready && !c.asked && !c.ending {
					c.asked = true
					c.send(message{Kind: "check"})
				}
			}
		case <-kill.C:
			kill.Reset(time.Duration(p.rng.Int64N(int64(4 * time.Second))))
			p.disturb()
		case e := <-p.events:
			if e.m == nil || e.m.Pair.Requests > 0 {
				hang.Reset(hangTime)
			}
			err = p.handle(e)
		case <-hang.C:
			err = fmt.Errorf("nothing has happened for %v", hangTime)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// disturb kills one end, stops it, or lets it go on.
func (p *pair) disturb() {
	c := p.children[[]string{"sender", "receiver"}[p.rng.IntN(2)]]
	switch {
	case p.ending || c == nil || c.killed:
	case c.stopped:
		c.resume()
	case p.rng.IntN(3) == 0:
		p.s.n.stops.Add(1)
		c.stop()
	default:
		p.s.n.pairKills.Add(1)
		c.kill()
	}
}

// end orders the sender to end. The sender compares both ends before, so the receiver ends after it.
func (p *pair) end() {
	p.ending = true
	for _, c := range p.children {
		if c.stopped {
			c.resume()
		}
	}
	if c := p.children["sender"]; c != nil && c.ready && !c.ending {
		c.ending = true
		c.send(message{Kind: "end"})
	}
}

func (p *pair) handle(e event) error {
	c := e.from
	switch {
	case e.err != nil && e.m != nil:
		return fmt.Errorf("%s: %w", c.name, e.err)
	case e.m == nil:
		return p.exited(c, e.err)
	case e.m.Error != "":
		p.s.n.losses.Add(1)
		return fmt.Errorf("%s: %s", c.name, e.m.Error)
	case e.m.Kind == "ready":
		c.ready = true
		if p.ending {
			p.end()
		}
	case e.m.Kind == "state":
		c.asked = false
		if e.m.Pair.Requests > 0 {
			p.firstAnswer()
		}
		p.s.n.pair.add(e.m.Pair)
		p.s.n.operations.Add(e.m.Pair.Requests)
		p.s.n.bytes.Add(e.m.Pair.Bytes)
	}
	return nil
}

// exited handles the exit of a child.
func (p *pair) exited(c *process, err error) error {
	delete(p.children, c.role)
	switch {
	case c.killed:
		return p.start(c.role)
	case err != nil || !c.ending:
		p.s.logs(c)
		return fmt.Errorf("%s ended without an order: %w", c.name, errors.Join(err, errors.New(c.log.String())))
	case c.role == "sender":
		if r := p.children["receiver"]; r != nil {
			r.ending = true
			r.send(message{Kind: "end"})
		}
	}
	return nil
}
