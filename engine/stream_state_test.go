package engine_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/engine"
	"github.com/ringcache/ringcache/engine/enginetest/wire"
	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/serde/enginecore"
)

// walk is a request for three children of which the second is being sent, and all that can happen to it.
type walk struct {
	*rig
	h       hostileEngine
	out     *gate // what the client sends
	items   *mmcache.Request
	produce func() // lets the producer return
	cancel  context.CancelFunc
	st      *engine.Stream
	ids     []string
	err     chan error // of Generate
}

// newWalk sends a request whose item the engine's mirror has already.
func newWalk(t *testing.T) *walk {
	produce := make(chan struct{})
	w := &walk{out: newGate(), produce: sync.OnceFunc(func() { close(produce) }), err: make(chan error, 1)}
	w.rig = newRig(t, setup{mode: "lru", idle: true, client: func(o *engine.Options) { o.Transport = w.out }})
	t.Cleanup(func() {
		w.produce()
		w.out.release()
	})
	w.h = newHostile(t, w.rig)
	first, err := w.Generate(w.ctx, w.request(1, "a"))
	require.NoError(t, err)
	w.h.say(tokens(w.h.ids(1)[0], 1, enginecore.FinishStop))
	_, err = first.Collect()
	require.NoError(t, err)
	w.until(func() bool { return w.Stats().InFlight == 0 })

	q := w.request(10, "a")
	q.Params["n"] = 3
	q.Items.Rollback()
	w.items, err = w.cache.Begin(w.ctx, "walk", mmcache.Want{Key: "a", Bytes: 4096, Modality: "image"})
	require.NoError(t, err)
	_, err = w.items.Item(w.ctx, "a", func(ctx context.Context, b *mmcache.Builder) error {
		<-produce // whatever becomes of ctx
		return mmcache.Ready(picture("a", rows), nil)(ctx, b)
	})
	require.NoError(t, err)
	q.Items = w.items
	ctx, cancel := context.WithCancel(w.ctx)
	w.cancel = cancel
	w.out.hold(typeAdd, 2)
	go func() {
		_, err := w.Generate(ctx, q)
		w.err <- err
	}()
	w.ids = w.h.ids(1)
	w.out.waits(t)
	w.st = engine.Streams(w.Client)[0]
	return w
}

// generated lets Generate return.
func (w *walk) generated() {
	w.out.release()
	require.NoError(w.t, <-w.err)
	w.ids = append(w.ids, w.h.ids(2)...)
	w.err <- nil
}

func (w *walk) miss(i int) {
	w.h.say(enginecore.Output{RequestID: w.ids[i], NewTokenIDs: []uint32{}, FinishReason: finish(enginecore.FinishError), MMCacheMissHashes: []string{"a"}})
}

func finish(r enginecore.FinishReason) *enginecore.FinishReason { return &r }

// sync returns when the client has taken in all that the engine said before.
func (w *walk) sync() {
	w.t.Helper()
	done := make(chan error, 1)
	go func() {
		_, err := w.Call(w.ctx, "anything")
		done <- err
	}()
	m := take[*enginecore.Call](w.h)
	f, err := newestWire(w.t).EncodeOutputs(&enginecore.Outputs{Answer: &enginecore.Answer{CallID: m.ID}})
	require.NoError(w.t, err)
	require.NoError(w.t, w.h.out.Send(f...))
	require.NoError(w.t, <-done)
}

// reach are the ways into each state of a stream, and who holds it there.
var reach = map[string]func(w *walk){
	"open, sending": func(w *walk) {},
	"open, running": (*walk).generated,
	"open, sending again": func(w *walk) {
		w.generated()
		w.miss(0)
		w.until(func() bool { return w.cache.Stats().Missed > 0 })
	},
	"ended, sending": func(w *walk) { w.st.Close() },
	"ended, sending again": func(w *walk) {
		w.generated()
		w.miss(0)
		w.until(func() bool { return w.cache.Stats().Missed > 0 })
		w.st.Close()
	},
	"settled": func(w *walk) {
		w.generated()
		w.st.Close()
	},
}

// causes are the ends of a stream, and the last words that they give it.
var causes = map[string]struct {
	fire func(w *walk)
	word error
}{
	"close":         {func(w *walk) { w.st.Close() }, engine.ErrAborted},
	"context":       {func(w *walk) { w.cancel() }, context.Canceled},
	"engine's end":  {func(w *walk) { require.NoError(w.t, w.h.out.Close()) }, engine.ErrDead},
	"error answer":  {func(w *walk) { w.h.say(tokens(w.ids[0], 0, enginecore.FinishError)) }, new(engine.RequestError)},
	"broken rule":   {func(w *walk) { w.h.say(tokens(w.ids[0], 100)) }, new(engine.RequestError)},
	"client's end":  {func(w *walk) { w.closeNow() }, engine.ErrClosed},
	"regular end":   {nil, io.EOF},
	"engine's word": {func(w *walk) { require.NoError(w.t, w.h.out.Send([]byte(wire.EngineDead))) }, engine.ErrCoreDead},
}

// closeNow closes the client without waiting for requests.
func (w *walk) closeNow() {
	over, cancel := context.WithCancel(w.ctx)
	cancel()
	closed := make(chan error, 1)
	go func() { closed <- w.Close(over) }()
	w.t.Cleanup(func() { require.NoError(w.t, <-closed) })
}

// TestStreamStates: every cause of an end in every state. The first cause is the last word,
// the request is settled once, and only when nobody sends for it; its items are ended once.
func TestStreamStates(t *testing.T) {
	for state, to := range reach {
		for name, cause := range causes {
			open := strings.HasPrefix(state, "open")
			if name == "regular end" && state != "open, running" {
				continue // the children have to finish, and here they can't
			}
			t.Run(state+"/"+name, func(t *testing.T) {
				w := newWalk(t)
				to(w)
				before, _, _ := strings.Cut(state, ",")
				require.Equal(t, before, w.st.State())
				if cause.fire == nil {
					w.h.say(tokens(w.ids[0], 1, enginecore.FinishStop), tokens(w.ids[1], 1, enginecore.FinishLength), tokens(w.ids[2], 1, enginecore.FinishRepetition))
				} else {
					cause.fire(w)
				}
				if open {
					w.until(func() bool { return w.st.State() != "open" })
				}
				held := strings.Contains(state, "sending")
				if held {
					require.Equal(t, "ended", w.st.State(), "somebody sends for it")
					require.Equal(t, 1, w.Stats().InFlight)
				}
				w.produce()
				w.out.release()
				if err := <-w.err; err != nil { // the engine went before all children were sent
					require.ErrorIs(t, err, engine.ErrDead)
					w.items.Rollback()
				}
				w.until(func() bool { return w.Stats().InFlight == 0 })
				require.Equal(t, "settled", w.st.State())
				word := cause.word
				if !open {
					word = engine.ErrAborted
				}
				last := lastWord(w.st)
				if _, isRequestError := word.(*engine.RequestError); isRequestError {
					var failed *engine.RequestError
					require.ErrorAs(t, last, &failed)
				} else {
					require.ErrorIs(t, last, word)
				}
				n := w.Stats()
				require.Equal(t, int64(2), n.Requests)
				require.Equal(t, int64(2), n.Finished+n.Failed)
				require.Zero(t, n.Refused)
				c := w.cache.Stats()
				require.Zero(t, c.Misused)
				require.Equal(t, c.Begun, c.Finished+c.Aborted+c.RolledBack, "each ended once")
			})
		}
	}
}

func lastWord(st *engine.Stream) error {
	for {
		if _, err := st.Next(context.Background()); err != nil {
			return err
		}
	}
}

// TestChildStates: every answer of the engine in every state of a child. What is not in the
// table ends the request, and a stray child is aborted.
func TestChildStates(t *testing.T) {
	answers := map[string]func(w *walk, i int){
		"output": func(w *walk, i int) { w.h.say(tokens(w.ids[i], 1)) },
		"last":   func(w *walk, i int) { w.h.say(tokens(w.ids[i], 1, enginecore.FinishStop)) },
		"miss":   (*walk).miss,
	}
	table := documented(t)["Child"]
	for state, row := range table {
		for event, answer := range answers {
			t.Run(state+"/"+event, func(t *testing.T) {
				w := newWalk(t)
				i := 0
				switch state {
				case "unsent":
					i = 2
					w.ids = append(w.ids, "1"+w.ids[0][1:], "2"+w.ids[0][1:])
				case "missed":
					w.generated()
					w.miss(0)
				case "finished":
					w.generated()
					w.h.say(tokens(w.ids[0], 1, enginecore.FinishStop))
				default:
					w.generated()
				}
				w.until(func() bool { return w.st.Child(i) == state })
				answer(w, i)
				if next := row[event]; next != "-" {
					w.sync()
					require.Equal(t, next, w.st.Child(i))
					require.Equal(t, "open", w.st.State())
					return
				}
				var failed *engine.RequestError
				require.ErrorAs(t, lastWord(w.st), &failed)
				require.ErrorContains(t, failed, fmt.Sprintf("the engine sent an output for child %d", i))
				if next := row["stray"]; next != "-" {
					require.Equal(t, next, w.st.Child(i))
				}
				w.produce()
				w.out.release()
				running := w.ids[:2]
				if state != "unsent" {
					running = w.ids
				}
				require.Equal(t, running, w.h.aborted())
			})
		}
	}
}
