package objstore

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmstore"
)

var lifecycles = flag.Int("lifecycles", 30_000, "requests in TestRandomLifecycles")

// TestRandomLifecycles runs requests through a model of an engine: a queue, a
// scheduler that preempts and resumes, and ranks that each read at their own pace
// in their own order, one behind the other. Whatever happens to a request, every
// handle that a rank comes to must be readable and the bytes right, since a worker
// that fails takes the engine with it; and when everything has ended, nothing may
// be left.
func TestRandomLifecycles(t *testing.T) {
	kinds := []struct {
		version string
		ranks   int
		rereads bool
	}{
		{"0.33.0", 2, true}, {"0.32.0", 1, false}, {"0.31.0", 2, true}, {"0.16.0", 4, false}, {"0.11.2", 2, false},
	}
	for _, k := range kinds {
		t.Run(fmt.Sprintf("%s ranks=%d rereads=%v", k.version, k.ranks, k.rereads), func(t *testing.T) {
			t.Parallel()
			l := newLife(t, k.version, k.ranks, k.rereads)
			l.run(max(1, *lifecycles/len(kinds)))
			t.Logf("%+v", l.n)
			for what, n := range map[string]int{
				"put": l.n.put, "hit": l.n.hit, "evicted": l.n.evicted, "read": l.n.read, "finished": l.n.finished, "aborted": l.n.aborted,
				"rolled back": l.n.rolledBack, "full": l.n.full, "restarts": l.n.restarts, "crashes": l.n.crashes, "fences": l.n.fences, "children": l.n.children,
			} {
				require.NotZero(t, n, "nothing was %s: the test shows little", what)
			}
			if k.rereads {
				require.NotZero(t, l.n.resumed)
			}
		})
	}
}

// life is a frontend and the model of its engine.
type life struct {
	t       *testing.T
	s       *store
	rnd     *rand.Rand
	rereads bool

	open    []*lifeRequest // of the frontend, sent and not ended
	inbox   []func()       // of the engine, in order
	running []*lifeRequest
	ranks   [][]func() // what each rank does next, in order

	n struct {
		begun, put, hit, full, evicted, read, finished, aborted, rolledBack, children, resumed, restarts, crashes, fences, drained int
	}
}

// lifeRequest is a request at the frontend and in the engine.
type lifeRequest struct {
	request
	w       *writer
	reads   []lifeRead
	left    int  // reads that ranks have still to do
	dropped bool // the engine schedules it no more
	ended   bool // at the frontend
	resumes int
}

type lifeRead struct {
	key string
	h   serde.Address
}

func newLife(t *testing.T, version string, ranks int, rereads bool) *life {
	l := &life{t: t, rnd: rand.New(rand.NewPCG(uint64(ranks), 7)), rereads: rereads, ranks: make([][]func(), ranks)}
	l.s = newPoolStore(t, Options{
		RingSize: 24 << 10, Readers: ranks, Generation: generation(t, version), Rereads: rereads, QuarantineTTL: -1,
		Watch: func(c shmstore.Change) {
			if !c.Present {
				l.n.evicted++
			}
		},
	})
	return l
}

// content is what an object must hold.
func content(key string, n int) []byte {
	return bytes.Repeat([]byte(key+"|"), n/(len(key)+1)+1)[:n]
}

func (l *life) run(requests int) {
	for l.n.begun < requests {
		switch r := l.rnd.IntN(100); {
		case r < 28 && len(l.open) < 12:
			l.begin()
		case r < 40:
			l.receive()
		case r < 48:
			l.preempt()
		case r < 50 && len(l.open) > 0:
			l.abort(l.open[l.rnd.IntN(len(l.open))])
		case r == 50:
			l.fence()
		case r == 51 && l.rnd.IntN(200) == 0:
			l.restart()
		case r == 52 && l.rnd.IntN(50) == 0:
			l.drain()
		case r == 53 && l.rnd.IntN(100) == 0:
			l.crash()
		default:
			l.step(l.rnd.IntN(len(l.ranks)))
		}
		// What is drawn rarely happens at least once. The same seed does not draw the
		// same every time, since the order in which maps are walked counts.
		if half := l.n.begun > requests/2; half && l.n.restarts == 0 {
			l.restart()
		} else if half && l.n.crashes == 0 {
			l.crash()
		}
	}
	l.drain()
}

// begin is the frontend with a new request of some images, for some children.
func (l *life) begin() {
	t := l.t
	l.n.begun++
	r := &lifeRequest{request: begin(t, l.s, fmt.Sprint("r", l.n.begun)), w: l.s.writer}
	children := 1
	if l.rnd.IntN(5) == 0 {
		children += 1 + l.rnd.IntN(2)
		l.n.children++
	}
	for range 1 + l.rnd.IntN(3) {
		// Some keys are popular. The same one twice in a request is another use.
		k := int(l.rnd.ExpFloat64() * 12)
		key := fmt.Sprint("image", k)
		for range children {
			h, err := r.Lookup(key)
			if errors.Is(err, ErrNotFound) {
				n := 40 + k*k*13%3000
				h, err = r.Put(key, &serde.Item{Modality: "image", Elems: []serde.Elem{{
					Key: "x", Data: &serde.Tensor{DType: "uint8", Shape: []int{n}, Data: content(key, n)},
				}}})
				if errors.Is(err, ErrFull) {
					l.n.full++ // it goes inline
					break
				}
				l.n.put++
			} else {
				l.n.hit++
			}
			require.NoError(t, err)
			r.reads = append(r.reads, lifeRead{key, h})
		}
	}
	if l.rnd.IntN(8) == 0 {
		r.Rollback()
		l.n.rolledBack++
		return
	}
	require.NoError(t, r.Request.Commit())
	l.open = append(l.open, r)
	l.inbox = append(l.inbox, func() {
		l.running = append(l.running, r)
		l.schedule(r)
	})
	if l.rnd.IntN(6) == 0 {
		l.abort(r) // right behind it
	}
}

// receive is the engine taking the next message.
func (l *life) receive() {
	if len(l.inbox) > 0 {
		next := l.inbox[0]
		l.inbox = l.inbox[1:]
		next()
	}
}

// schedule gives every rank the reads of a request.
func (l *life) schedule(r *lifeRequest) {
	if r.dropped {
		return
	}
	for i := range l.ranks {
		for _, read := range r.reads {
			r.left++
			l.ranks[i] = append(l.ranks[i], func() {
				l.read(i, read)
				r.left--
			})
		}
	}
}

func (l *life) read(rank int, read lifeRead) {
	t := l.t
	r := l.s.readers[rank]
	if l.s.chunks.options.Generation.Counting == pycompat.CountTouch {
		require.NoError(t, r.Touch(context.Background(), read.key, read.h))
	}
	v, err := r.Get(read.key, read.h)
	require.NoError(t, err, "rank %d would kill the engine", rank)
	e, _ := v.Item().Lookup("x")
	data := e.Data.(*serde.Tensor).Data
	if !bytes.Equal(data, content(read.key, len(data))) {
		t.Fatalf("key %q has the bytes of another: %q", read.key, data[:min(len(data), 40)])
	}
	require.NoError(t, v.Release())
	l.n.read++
}

// preempt is the scheduler: it takes a running request off and resumes it, or
// finds it finished.
func (l *life) preempt() {
	if len(l.running) == 0 {
		return
	}
	i := l.rnd.IntN(len(l.running))
	r := l.running[i]
	switch {
	case !r.dropped && l.rereads && r.resumes < 3 && l.rnd.IntN(4) == 0:
		r.resumes++
		l.n.resumed++
		l.schedule(r)
		return
	case r.dropped, r.left == 0:
		l.running = append(l.running[:i:i], l.running[i+1:]...)
	}
	if !r.dropped && r.left == 0 && !r.ended {
		l.end(r)
		r.Finish()
		l.n.finished++
	}
}

func (l *life) end(r *lifeRequest) {
	r.ended = true
	for i, o := range l.open {
		if o == r {
			l.open = append(l.open[:i:i], l.open[i+1:]...)
			return
		}
	}
}

// abort is the frontend whose client went away: the engine hears of it later.
func (l *life) abort(r *lifeRequest) {
	l.inbox = append(l.inbox, func() { r.dropped = true })
	l.end(r)
	r.Abort()
	l.n.aborted++
}

// fence is a call that every rank executes behind everything sent before.
func (l *life) fence() {
	w, f := l.s.writer, l.s.Fence()
	l.inbox = append(l.inbox, func() {
		left := len(l.ranks)
		for i := range l.ranks {
			l.ranks[i] = append(l.ranks[i], func() {
				if left--; left == 0 && w == l.s.writer {
					f.Passed()
					l.n.fences++
				}
			})
		}
	})
}

// step is a rank doing its next work.
func (l *life) step(rank int) {
	if q := l.ranks[rank]; len(q) > 0 {
		l.ranks[rank] = q[1:]
		q[0]()
	}
}

// restart kills the engine.
func (l *life) restart() {
	l.inbox, l.running, l.open = nil, nil, nil
	for i := range l.ranks {
		l.ranks[i] = nil
	}
	require.NoError(l.t, l.s.ResetReaders(0))
	l.n.restarts++
}

// crash kills the frontend. The next one adopts the segment; the engine goes on
// with what the dead one sent, and nobody waits for it.
func (l *life) crash() {
	w, a, err := adoptSegment(l.s.Segment(), l.s.pool.opt)
	require.NoError(l.t, err)
	require.Zero(l.t, a.Dropped)
	require.Equal(l.t, l.s.Len(), a.Kept)
	l.s.writer = w
	for _, r := range l.open {
		r.ended = true
	}
	l.open = nil
	l.n.crashes++
	l.inbox = append(l.inbox, func() { // the new frontend aborts what it does not know
		for _, r := range l.running {
			r.dropped = r.dropped || r.w != w
		}
	})
	l.fence()
}

// drain lets everything end and looks whether something is left.
func (l *life) drain() {
	l.fence()
	for len(l.open) > 0 || len(l.inbox) > 0 || len(l.running) > 0 {
		l.receive()
		for i := range l.ranks {
			for len(l.ranks[i]) > 0 {
				l.step(i)
			}
		}
		l.preempt()
	}
	l.fence()
	l.receive()
	for i := range l.ranks {
		for len(l.ranks[i]) > 0 {
			l.step(i)
		}
	}
	require.NoError(l.t, l.s.CheckStructure())
	st, err := l.s.State()
	require.NoError(l.t, err)
	require.Zero(l.t, st.Leases)
	require.Zero(l.t, st.Quarantined)
	require.Zero(l.t, used(l.t, l.s.writer), "something is pinned though everything has ended")
	l.n.drained++
}
