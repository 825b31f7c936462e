package tier

import "sync"

// workers are the goroutines that call lower levels in the background. Fetches and write-back share them, so
// that Options.MaxCalls bounds both together.
//
// signal is a leaf: it may be called under the lock of a part, and calls nobody.
type workers struct {
	mu      sync.Mutex
	wake    *sync.Cond
	signals uint64 // how often work may have appeared
	stopped bool   // run returns
}

// newWorkers returns workers of which none runs yet.
func newWorkers() *workers {
	w := &workers{signals: 1} // all look for work once
	w.wake = sync.NewCond(&w.mu)
	return w
}

// signal tells the workers that there may be work, or room for it.
func (w *workers) signal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.signals++
	w.wake.Broadcast()
}

// run is one worker: it does what next returns, one after the other, and waits for a signal when that is nil.
func (w *workers) run(next func() func()) {
	seen := uint64(0)
	for w.await(&seen) {
		if do := next(); do != nil {
			do()
			w.signal() // what the work took is free
		}
	}
}

// await waits for a signal after the one that was seen, so that none between next and the wait is lost. It
// reports false after stop.
func (w *workers) await(seen *uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.signals == *seen && !w.stopped {
		w.wake.Wait()
	}
	*seen = w.signals
	return !w.stopped
}

// stop ends all workers after the work that they do.
func (w *workers) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	w.wake.Broadcast()
}
