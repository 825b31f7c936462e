package engine

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/ringcache/ringcache/kv"
	"github.com/ringcache/ringcache/tier"
)

// An Engine stores the KV of one worker's requests and retrieves it. Its methods may be called from any
// goroutine; calls that touch the same slots are the caller's to order.
type Engine struct {
	o      Options
	hasher *kv.Hasher // of keys of ours
	name   string     // of its leases
	leases atomic.Int64
}

// New returns an Engine. It has nothing to close.
func New(o Options) (*Engine, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	e := &Engine{o: o.withDefaults()}
	var err error
	if e.hasher, err = kv.NewHasher(kv.Scheme{ChunkTokens: o.Layout.ChunkTokens}); err != nil {
		return nil, err
	}
	var id [8]byte
	_, _ = rand.Read(id[:]) // it never fails
	e.name = "lmcache engine " + hex.EncodeToString(id[:])
	return e, nil
}

// lease opens a lease for one call.
func (e *Engine) lease(ctx context.Context) (*tier.StoreLease, error) {
	return e.o.Store.Lease(ctx, tier.LeaseOptions{
		ID:    e.name + " " + strconv.FormatInt(e.leases.Add(1), 10),
		Owner: "lmcache engine",
		Until: time.Now().Add(e.o.LeaseTime),
	})
}

// renew begins a step of a call.
func (e *Engine) renew(lease *tier.StoreLease) error {
	return lease.SetUntil(time.Now().Add(e.o.LeaseTime))
}

// held reports whether a lease has kept all through a step what it pinned.
func held(lease *tier.StoreLease) error {
	if s := lease.Summary(); s.Expired || s.Ended {
		return errSlow
	}
	return nil
}

// The pauses between two questions about what is pending.
const (
	minPause = 50 * time.Microsecond
	maxPause = 5 * time.Millisecond
)

// ask asks until nothing is pending. A lease has no way to wait, since its other users must not.
func ask(ctx context.Context, pin func() []tier.Placed) ([]tier.Placed, error) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		placed := pin()
		if !anyPending(placed) {
			return placed, nil
		}
		timer.Reset(pause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
	}
}

// anyPending reports whether an object is on its way. One that somebody stores is not waited for: that may
// take as long as a reservation stays.
func anyPending(placed []tier.Placed) bool {
	for _, p := range placed {
		if errors.Is(p.Err, tier.ErrPending) && !errors.Is(p.Err, tier.ErrReserved) {
			return true
		}
	}
	return false
}

// needLayered refuses calls of the other kind of engine.
func (e *Engine) needLayered(layered bool) error {
	if e.o.Layered != layered {
		return invalid(fmt.Errorf(
			"Options.Layered is %t: SaveLayers and LoadLayers are for layers, "+
				"Store and Retrieve for whole chunks",
			e.o.Layered))
	}
	return nil
}
