package main

import (
	"bytes"
	"context"
	"fmt"

	"github.com/ringcache/ringcache/daemon/client"
	"github.com/ringcache/ringcache/daemon/wire"
)

const leases = 4 // of a session whose memory is measured

// costs fills the segment, and measures what objects, sessions and leases add to the daemon's own memory.
func costs(ctx context.Context, b *bed, r *results) error {
	before, err := b.daemon.taken()
	if err != nil {
		return err
	}
	if err := fill(ctx, b); err != nil {
		return fmt.Errorf("filling: %w", err)
	}
	full, err := b.daemon.ask()
	if err != nil {
		return err
	}
	sessions := min(1000, b.o.Objects/10)
	var clients []*client.Client
	defer func() {
		for _, c := range clients {
			_ = c.Close()
		}
	}()
	for range sessions {
		c, err := b.dial(ctx, "")
		if err != nil {
			return err
		}
		clients = append(clients, c)
	}
	connected, err := b.daemon.ask()
	if err != nil {
		return err
	}
	var q wire.Request
	for i, c := range clients {
		for n := range leases {
			q = wire.Request{Lease: fmt.Sprint("lease ", n), Space: space, Names: names(i*leases+n, 1, b.o.Objects)}
			items, err := c.Pin(ctx, q)
			if err := all(items, err, wire.StatusHit); err != nil {
				return err
			}
		}
	}
	leased, err := b.daemon.ask()
	if err != nil {
		return err
	}
	for _, c := range clients {
		for n := range leases {
			if err := c.Release(ctx, wire.Request{Leases: []string{fmt.Sprint("lease ", n)}}); err != nil {
				return err
			}
		}
	}
	r.empty = before.Private
	r.perObject = float64(full.Heap-before.Heap) / float64(b.o.Objects)
	r.perSession = (float64(connected.Heap) - float64(full.Heap)) / float64(sessions)
	r.perLease = (float64(leased.Heap) - float64(connected.Heap)) / float64(sessions*leases)
	r.full = full.Private
	return nil
}

// fill stores all objects.
func fill(ctx context.Context, b *bed) error {
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
	size := b.o.size()
	for first := 0; first < b.o.Objects; first += perCall {
		q := wire.Request{Lease: "fill", Space: space,
			Names: names(first, min(perCall, b.o.Objects-first), b.o.Objects)}
		for _, n := range q.Names {
			q.Objects = append(q.Objects, wire.Object{Name: n, Size: int64(size), Note: []byte("bfloat16 256 80")})
		}
		reserve := q
		reserve.Names = nil
		items, err := c.Reserve(ctx, reserve)
		if err := all(items, err, wire.StatusReserved); err != nil {
			return err
		}
		for i, v := range items {
			bytes, err := m.Bytes(v)
			if err != nil {
				return err
			}
			content(bytes, first+i)
		}
		q.Objects = nil
		items, err = c.Commit(ctx, q)
		if err := all(items, err, wire.StatusOK); err != nil {
			return err
		}
	}
	return nil
}

// content writes the bytes of an object.
func content(b []byte, n int) {
	at := copy(b, name(n))
	for at < len(b) {
		at += copy(b[at:], b[:at])
	}
}

func same(b []byte, n int) bool {
	want := make([]byte, len(b))
	content(want, n)
	return bytes.Equal(b, want)
}
