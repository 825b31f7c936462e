package daemon

import (
	"errors"
	"strings"
	"sync"
	"time"
)

// What a daemon is doing. The goroutine of run goes from each phase to the next one; HTTP is answered in all.
const (
	phaseOpening  int32 = iota // there is no store yet, or only a part of it
	phaseServing               // store, socket and server are there
	phaseDraining              // no request begins any more, and pending writes are done
	phaseClosed                // the store is being closed, or run has failed
)

// errHangs is why a daemon can't go on.
var errHangs = errors.New("the store does not answer")

// healthy reports why the daemon can't go on: its store does not answer. While levels are opened and closed
// there is nothing to ask.
func (r *runner) healthy() error {
	if p := r.phase.Load(); p == phaseOpening || p == phaseClosed {
		return nil
	}
	if !r.probe.ask(func() { r.levels.store.State() }, probeTime) {
		return errHangs
	}
	return nil
}

// serving reports in which other phase the daemon is.
func (r *runner) serving() error {
	switch r.phase.Load() {
	case phaseOpening:
		return errors.New("opening the levels, and taking over what an earlier daemon left")
	case phaseDraining:
		return errors.New("draining")
	case phaseClosed:
		return errors.New("closed")
	}
	return nil
}

// ready reports why the daemon takes no requests. The text is a remark about one that does.
func (r *runner) ready() (string, error) {
	if err := r.serving(); err != nil {
		return "", err
	}
	if err := r.healthy(); err != nil {
		return "", err
	}
	if err := errors.Join(r.socket.check(), r.lmcache.check(), r.checkValues(), r.server.checkSegment()); err != nil {
		return "", err
	}
	var away []string
	for _, l := range r.levels.store.State().Levels {
		if l.Away {
			away = append(away, l.Name)
		}
	}
	if len(away) > 0 {
		return "away: " + strings.Join(away, ", "), nil
	}
	return "", nil
}

// probeTime is how long an answer without input and output may take on a machine that is busy.
const probeTime = 10 * time.Second

// probe asks something that may hang, with one goroutine at most.
type probe struct {
	mu      sync.Mutex
	running chan struct{} // closed when the question is answered
}

// ask reports whether f returned in time, or the f before it did.
func (p *probe) ask(f func(), limit time.Duration) bool {
	p.mu.Lock()
	done := p.running
	if done == nil {
		done = make(chan struct{})
		p.running = done
		go func() {
			f()
			p.mu.Lock()
			p.running = nil
			p.mu.Unlock()
			close(done)
		}()
	}
	p.mu.Unlock()
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}
