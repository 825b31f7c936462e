package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
)

// What a writer does for the supervisor.

// fence takes a fence. The supervisor answers when all that was sent before was read.
func (w *writer) fence() {
	w.mu.Lock()
	if len(w.fences) > 3 {
		w.mu.Unlock()
		return
	}
	w.fenced++
	n := w.fenced
	w.fences[n] = w.store.fence()
	w.mu.Unlock()
	say(message{Kind: "fence", Fence: n})
}

func (w *writer) obey(m message) error {
	switch m.Kind {
	case "finish", "abort":
		w.mu.Lock()
		r := w.open[m.Request]
		delete(w.open, m.Request)
		w.idle.Broadcast()
		w.mu.Unlock()
		switch {
		case r == nil:
			return fmt.Errorf("request %s is not open", m.Request)
		case m.Kind == "finish":
			r.finish()
		default:
			r.abort()
		}
	case "pass":
		w.mu.Lock()
		f := w.fences[m.Fence]
		delete(w.fences, m.Fence)
		w.idle.Broadcast()
		w.mu.Unlock()
		if w.c.Store.Kind != "fifo" {
			f.Passed()
		}
	case "reset":
		w.sending.Lock()
		defer w.sending.Unlock()
		if err := w.store.reset(); err != nil {
			return err
		}
		w.mu.Lock()
		for _, r := range w.open {
			r.finish() // it has ended, but what it looked at in this process has not
		}
		clear(w.open)
		w.idle.Broadcast()
		w.mu.Unlock()
		say(message{Kind: "reset"})
	case "check":
		if err := w.leak(); err != nil {
			return err
		}
		if err := w.store.check(); err != nil {
			return err
		}
		say(message{Kind: "state", Goroutines: runtime.NumGoroutine()})
	default:
		return fmt.Errorf("order %q", m.Kind)
	}
	return nil
}

// leak is the planted defect that growth must show.
func (w *writer) leak() error {
	if w.c.Plant != "descriptor" {
		return nil
	}
	for range 50 {
		f, err := os.Open(os.DevNull)
		if err != nil {
			return err
		}
		w.leaks = append(w.leaks, f)
	}
	return nil
}

// end takes no new requests, lets those that are open end, and gives the store up.
func (w *writer) end(keep bool, orders <-chan message) error {
	done := make(chan struct{})
	go func() {
		w.gate.Lock() // for ever
		w.await(func() bool { return len(w.open) == 0 })
		close(done)
	}()
	for {
		select {
		case err := <-w.failed:
			return err
		case m := <-orders:
			if err := w.obey(m); err != nil {
				return err
			}
		case <-done:
			if err := w.store.check(); err != nil {
				return err
			}
			return w.store.end(context.Background(), keep)
		}
	}
}
