package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
)

// This file has what a writer does on orders of the supervisor.

// fence requests a fence. The supervisor answers when all requests that were sent before were read.
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
	report(message{Kind: "fence", Fence: n})
}

func (w *writer) handle(m message) error {
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
			r.finish() // the reset ended the leases of readers, not those of this process
		}
		clear(w.open)
		w.idle.Broadcast()
		w.mu.Unlock()
		report(message{Kind: "reset"})
	case "check":
		if err := w.leak(); err != nil {
			return err
		}
		if err := w.store.check(); err != nil {
			return err
		}
		report(message{Kind: "state", Goroutines: runtime.NumGoroutine()})
	default:
		return fmt.Errorf("order %q", m.Kind)
	}
	return nil
}

// leak is the planted defect that growth must find.
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

// end stops new requests, waits for those that are open, and closes the store.
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
			if err := w.handle(m); err != nil {
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
