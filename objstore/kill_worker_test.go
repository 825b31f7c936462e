package objstore

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/fault"
)

// workerChild is a process that attaches before anyone is killed, and looks at
// what its parent asks for. It answers each line with ok, stale, or what is wrong.
//
//	get handle     look at it
//	count handle   look at it, and count the read
//	hold handle    keep a view of it
//	held           look at all views that are kept
//	release        end them
func workerChild(o killOrder) error {
	look, err := Open(o.Name, killReaderOptions(false))
	if err != nil {
		return err
	}
	counts, err := Open(o.Name, killReaderOptions(true))
	if err != nil {
		return err
	}
	if !look.Protected() || !counts.Protected() {
		return errors.New("there was no slot")
	}
	type held struct {
		killHandle
		v *View
	}
	var views []held
	say("ok")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		verb, rest, _ := strings.Cut(in.Text(), " ")
		var h killHandle
		var err error
		if rest != "" {
			h, err = parseHandle(rest)
		}
		switch {
		case err != nil:
		case verb == "get":
			err = h.look(look)
		case verb == "count":
			err = h.look(counts)
		case verb == "hold":
			var v *View
			if v, err = look.Get(h.key, h.h); err == nil {
				views = append(views, held{h, v})
			}
		case verb == "held":
			for _, h := range views {
				err = errors.Join(err, h.verify(h.v.Value()), h.v.Check())
			}
		case verb == "release":
			for _, h := range views {
				err = errors.Join(err, h.v.Release())
			}
			views = nil
		default:
			err = fmt.Errorf("no verb %q", verb)
		}
		switch {
		case err == nil:
			say("ok")
		case errors.Is(err, ErrStale):
			say("stale")
		default:
			say("%s", strings.ReplaceAll(err.Error(), "\n", "; "))
		}
	}
	return errors.Join(in.Err(), look.Close(), counts.Close())
}

// killWorker is that process as the test sees it.
type killWorker struct {
	p *fault.Process

	mu    sync.Mutex // one question at a time
	queue chan *killIssued
	done  sync.WaitGroup // of the queue
	err   error
	stale []*killIssued
	views int
}

func startWorker(t *testing.T, name string) *killWorker {
	t.Helper()
	k := &killWorker{p: startChild(t, killOrder{Role: "worker", Name: name}), queue: make(chan *killIssued, 16)}
	answer, err := k.p.Line()
	require.NoError(t, err)
	require.Equal(t, "ok", answer)
	go func() {
		for h := range k.queue {
			k.ask("get", h)
			k.done.Done()
		}
	}()
	t.Cleanup(func() { close(k.queue) })
	return k
}

// offer lets the worker look at a handle while the writer goes on, unless it has
// much to do already.
func (k *killWorker) offer(h *killIssued) {
	k.done.Add(1)
	select {
	case k.queue <- h:
	default:
		k.done.Done()
	}
}

func (k *killWorker) ask(verb string, h *killIssued) (ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	line := verb
	if h != nil {
		line += " " + h.String()
	}
	if _, err := fmt.Fprintln(k.p.In, line); err != nil {
		k.err = errors.Join(k.err, err)
		return false
	}
	answer, err := k.p.Line()
	switch {
	case err != nil:
		k.err = errors.Join(k.err, err)
	case answer == "ok":
		return true
	case answer == "stale" && h != nil:
		k.stale = append(k.stale, h)
	default:
		k.err = errors.Join(k.err, fmt.Errorf("worker: %s: %s", line, answer))
	}
	return false
}

// judge waits until the worker has answered everything. No answer may be wrong,
// and stale only what is not in flight any more.
func (k *killWorker) judge(t *testing.T, m *killModel) {
	t.Helper()
	k.done.Wait()
	require.NoError(t, k.err)
	for _, h := range k.stale {
		require.False(t, slices.Contains(m.handles, h), "worker: stale, but in flight: %v", h)
	}
	k.stale = nil
}

// hold makes the worker keep a view.
func (k *killWorker) hold(h *killIssued) {
	if k.ask("hold", h) {
		k.views++
	}
}

func (k *killWorker) release() {
	k.ask("release", nil)
	k.views = 0
}
