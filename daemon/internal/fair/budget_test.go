package fair

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// check verifies what must hold between calls.
func (b *Budget) check(t *testing.T, shares ...*Share) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	var held, apart int64
	waiting := 0
	for _, s := range shares {
		require.GreaterOrEqual(t, s.held, int64(0))
		require.LessOrEqual(t, s.apart, s.held)
		held += s.held
		apart += s.apart
		if len(s.line) > 0 {
			waiting++
		}
	}
	require.Equal(t, held, b.used)
	require.Equal(t, apart, b.apart)
	require.LessOrEqual(t, apart, b.size/4)
	require.LessOrEqual(t, b.peak, b.size)
	require.Len(t, b.queue, waiting)
	for _, s := range b.queue {
		require.False(t, b.allows(s, s.line[0].n) && b.queue[0] == s, "the first one waits for nothing")
	}
}

// TestSharesLeaveRoom: alone a process has half, and each next one half of what is left, so that there is always some.
func TestSharesLeaveRoom(t *testing.T) {
	b := NewBudget(1000)
	shares := make([]*Share, 8)
	for i, want := range []int64{500, 250, 125, 62, 31, 16, 8, 4} {
		shares[i] = &Share{}
		for b.TryAcquire(shares[i], 1) {
		}
		require.Equal(t, want, shares[i].held, i)
	}
	b.check(t, shares...)
	require.True(t, b.TryAcquire(&Share{}, 4), "who has nothing may have all that is free")
	require.False(t, b.TryAcquire(&Share{}, 1))
}

// begin lets a goroutine wait for bytes, and returns when it does.
func (b *Budget) begin(s *Share, n int64) chan bool {
	b.mu.Lock()
	before := len(s.line)
	b.mu.Unlock()
	got := make(chan bool, 1)
	go func() { got <- b.Acquire(nil, s, n) }()
	for {
		b.mu.Lock()
		now := len(s.line)
		b.mu.Unlock()
		if now > before {
			return got
		}
		runtime.Gosched()
	}
}

// TestWaitsGoByProcess: those who wait have their turn by process, a large request is not overtaken for ever,
// and a process that has its share holds nobody up.
func TestWaitsGoByProcess(t *testing.T) {
	b := NewBudget(100)
	var greedy, large, small Share
	require.True(t, b.Acquire(nil, &greedy, 50))
	var more []chan bool
	for range 3 {
		more = append(more, b.begin(&greedy, 20))
	}
	require.True(t, b.Acquire(nil, &small, 10), "others have room")
	first := b.begin(&large, 45)
	require.False(t, b.TryAcquire(&Share{}, 7), "it would overtake the large one")
	require.False(t, b.TryAcquire(&small, 1), "it has something")
	b.Release(&greedy, 50)
	require.True(t, <-first, "it has its time, though others began to wait before")
	b.check(t, &greedy, &large, &small)
	b.Release(&large, 45)
	b.Release(&small, 10)
	for _, c := range more {
		require.True(t, <-c)
		b.Release(&greedy, 20)
	}
	b.check(t, &greedy, &large, &small)
	now, _ := b.Used()
	require.Zero(t, now)
}

// TestLittleOvertakesMuch: processes with much, and one that waits for much, keep nobody waiting who has
// nothing and wants little; and however many want little all the time, whoever waits for much has his time.
func TestLittleOvertakesMuch(t *testing.T) {
	b := NewBudget(2400)
	large := make([]*Share, 5)
	for i := range large {
		large[i] = &Share{}
		if i < 4 {
			require.True(t, b.TryAcquire(large[i], 400))
		}
	}
	require.False(t, b.TryAcquire(large[4], 400), "it would take what is set apart")
	got := b.begin(large[4], 1500)
	many := make([]*Share, 100)
	for i := range many {
		many[i] = &Share{}
	}
	fill := func() (n int) {
		for _, s := range many {
			if b.TryAcquire(s, 25) {
				n++
			}
		}
		return n
	}
	require.Equal(t, 21, fill())
	require.False(t, b.TryAcquire(many[0], 1), "it has something")
	require.False(t, b.TryAcquire(&Share{}, 151))
	require.True(t, b.TryAcquire(&Share{}, 18), "there is always some")
	for i := range 4 { // as many as may, and again as soon as they have given something back
		select {
		case <-got:
			t.Fatal("it has more than there is")
		default:
		}
		for _, s := range many {
			b.Release(s, s.held)
		}
		require.NotZero(t, fill(), i)
		b.Release(large[i], 400)
	}
	require.True(t, <-got)
	b.check(t, append(append(many, large...), &Share{held: 18, apart: 18})...)
}

// TestAllOfABudgetIsOvertakenByNobody: who wants more than three quarters would wait for those who want little.
func TestAllOfABudgetIsOvertakenByNobody(t *testing.T) {
	b := NewBudget(1000)
	var one, all Share
	require.True(t, b.TryAcquire(&one, 500))
	got := b.begin(&all, 1000)
	require.False(t, b.TryAcquire(&Share{}, 1))
	b.check(t, &one, &all)
	b.Release(&one, 500)
	require.True(t, <-got)
	b.check(t, &one, &all)
}

// TestWaitEnds: by the server's end, or at once for what will never fit.
func TestWaitEnds(t *testing.T) {
	b := NewBudget(100)
	var one, two Share
	require.False(t, b.Acquire(nil, &one, 101))
	require.True(t, b.Acquire(nil, &one, 100))
	stop := make(chan struct{})
	close(stop)
	require.False(t, b.Acquire(stop, &two, 1))
	b.check(t, &one, &two)
	b.Release(&one, 100)
	b.check(t, &one, &two)
}

// TestBudgetTogether: never more than there is, and everybody gets what he waits for.
func TestBudgetTogether(t *testing.T) {
	b := NewBudget(1000)
	shares := make([]*Share, 6)
	for i := range shares {
		shares[i] = &Share{}
	}
	var all sync.WaitGroup
	for i := range 24 {
		all.Go(func() {
			s := shares[i%len(shares)]
			for range 300 {
				n := rand.Int64N(1000) + 1
				if !b.Acquire(nil, s, n) {
					t.Error("it was not granted")
				}
				b.Release(s, n)
			}
		})
	}
	all.Wait()
	b.check(t, shares...)
	now, _ := b.Used()
	require.Zero(t, now)
}
