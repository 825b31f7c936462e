package tier

import "sync/atomic"

// gate lets calls in until it is shut. Calls may call the store again, as a loop over List does: so it is no
// lock, which would keep the inner call waiting for the end of the outer one.
type gate struct {
	calls atomic.Int64
	shut  atomic.Bool
	idle  chan struct{} // of capacity 1: the last call has left
}

func newGate() gate { return gate{idle: make(chan struct{}, 1)} }

// enter reports whether the gate is open, and counts the call until leave.
func (g *gate) enter() bool {
	g.calls.Add(1)
	if g.shut.Load() {
		g.leave()
		return false
	}
	return true
}

func (g *gate) leave() {
	if g.calls.Add(-1) == 0 && g.shut.Load() {
		select {
		case g.idle <- struct{}{}:
		default:
		}
	}
}

// wait shuts the gate and waits until all calls have left. It is called once.
func (g *gate) wait() {
	g.shut.Store(true)
	for g.calls.Load() != 0 {
		<-g.idle
	}
}
