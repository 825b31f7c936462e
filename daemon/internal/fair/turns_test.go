package fair

import (
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// rig lets tests see who has the only turn.
type rig struct {
	*testing.T
	turns *Turns
	got   chan string
}

func newRig(t *testing.T) *rig { return &rig{t, NewTurns(1), make(chan string, 100)} }

// wait lets a request wait for a turn, in the order of the calls.
func (r *rig) wait(q *Queue, name string) {
	r.Helper()
	n := r.turns.Waiting()
	go func() {
		r.turns.Acquire(q, make(chan struct{}, 1))
		r.got <- name
	}()
	for r.turns.Waiting() == n {
		runtime.Gosched()
	}
}

// TestTurnsGoByProcess: who has cost little is next, however many requests another one has, and whenever he came.
func TestTurnsGoByProcess(t *testing.T) {
	r := newRig(t)
	var greedy, modest, other Queue
	r.turns.Acquire(&greedy, make(chan struct{}, 1))
	for range 5 {
		r.wait(&greedy, "greedy")
	}
	r.wait(&modest, "modest")
	r.turns.Release(&greedy, 100)
	require.Equal(t, "modest", <-r.got)
	r.wait(&modest, "modest")
	r.turns.Release(&modest, 50)
	require.Equal(t, "modest", <-r.got, "it has cost half as much")
	r.wait(&modest, "modest")
	r.turns.Release(&modest, 60)
	require.Equal(t, "greedy", <-r.got)
	r.wait(&other, "other")
	r.turns.Release(&greedy, 1)
	require.Equal(t, "other", <-r.got, "who comes now has no debt")
	for range 200 { // nor does it have 200 turns saved up, or paid for the time alone
		r.wait(&other, "other")
		r.turns.Release(&other, 1)
		if <-r.got == "greedy" {
			return
		}
	}
	t.Fatal("an old process waits for a new one for ever")
}

// TestIdleTimeIsNeitherSavedNorPaid: a process that worked alone is not behind afterwards.
func TestIdleTimeIsNeitherSavedNorPaid(t *testing.T) {
	r := newRig(t)
	var busy, idle Queue
	for range 1000 {
		r.turns.Acquire(&busy, make(chan struct{}, 1))
		r.turns.Release(&busy, 10)
	}
	r.turns.Acquire(&idle, make(chan struct{}, 1))
	r.wait(&idle, "idle")
	r.wait(&busy, "busy")
	r.turns.Release(&idle, 12)
	require.Equal(t, "busy", <-r.got)
	r.turns.Release(&busy, 1)
	require.Equal(t, "idle", <-r.got)
	r.turns.Release(&idle, 1)
}

// TestPausesGoOnFirst: of the requests of a process, one that has begun comes before others.
func TestPausesGoOnFirst(t *testing.T) {
	r := newRig(t)
	var q, other Queue
	r.turns.Acquire(&q, make(chan struct{}, 1))
	r.wait(&q, "second")
	r.wait(&q, "third")
	r.wait(&other, "other")
	go func() {
		r.turns.Yield(&q, make(chan struct{}, 1), 1)
		r.got <- "first"
	}()
	require.Equal(t, "other", <-r.got)
	for r.turns.Waiting() < 3 {
		runtime.Gosched()
	}
	r.turns.Release(&other, 10)
	for _, name := range []string{"first", "second", "third"} {
		require.Equal(t, name, <-r.got)
		r.turns.Release(&q, 1)
	}
}

// TestTurnsTogether: no more work at a time than there are turns, and nobody waits for ever.
func TestTurnsTogether(t *testing.T) {
	turns := NewTurns(3)
	queues := make([]Queue, 5)
	var mu sync.Mutex
	var all sync.WaitGroup
	working := 0
	step := func(n int) {
		mu.Lock()
		defer mu.Unlock()
		working += n
		if working > 3 {
			t.Errorf("%d at a time", working)
		}
	}
	for i := range 20 {
		all.Go(func() {
			q, wake := &queues[i%len(queues)], make(chan struct{}, 1)
			for n := range 200 {
				turns.Acquire(q, wake)
				step(1)
				step(-1)
				turns.Yield(q, wake, n%7)
				step(1)
				step(-1)
				turns.Release(q, n%5)
			}
		})
	}
	all.Wait()
	require.Zero(t, turns.Waiting())
	require.Equal(t, 3, turns.free)
	for i := range queues {
		require.Zero(t, queues[i].running)
	}
}
