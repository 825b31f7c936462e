package blake3

import (
	"encoding/hex"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	zeebo "github.com/zeebo/blake3"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// procs lets the test run on n processors, or as many threads.
func procs(t *testing.T, n int) {
	before := runtime.GOMAXPROCS(n)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

// idle waits for helpers that started late.
func idle(t *testing.T) {
	t.Helper()
	for everyone.working.Load() != 0 {
		runtime.Gosched()
	}
}

func TestParallelIsSerial(t *testing.T) {
	procs(t, 4)
	in := pattern(batchLen + 3*pieceLen + groupLen + 5)
	for _, n := range []int{parallelLen, parallelLen + groupLen + 1, parallelLen + 5*groupLen + 131, 3 << 20, len(in)} {
		for _, before := range []int{0, 1, groupLen, 5*groupLen + 130} {
			if n == len(in) && before != 1 {
				continue // it takes long
			}
			h := plainHasher(true)
			everyone.learn(true)
			everyone.skips.Store(0) // so that helpers are tried
			_, _ = h.Write(in[:before])
			_, _ = h.Write(in[before:n])
			want := zeebo.Sum256(in[:n])
			require.Equal(t, hex.EncodeToString(want[:]), hex.EncodeToString(h.Sum(nil)), "%d bytes, the first %d alone", n, before)
		}
	}
	idle(t)
}

// Many at a time, more than there are processors, with helpers among them.
func TestParallelWritesShareProcessors(t *testing.T) {
	procs(t, 3)
	in := pattern(2 << 20)
	want := zeebo.Sum256(in)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			h := plainHasher(true)
			for range 5 {
				h.Reset()
				_, _ = h.Write(in)
				if hex.EncodeToString(h.Sum(nil)) != hex.EncodeToString(want[:]) {
					t.Error("a wrong hash")
				}
			}
		})
	}
	wg.Wait()
	idle(t)
}

func TestHelpersAreBounded(t *testing.T) {
	procs(t, 4)
	var c crew
	c.working.Add(1) // a caller
	require.Equal(t, 2, c.engage(2))
	require.Equal(t, 1, c.engage(9), "as many as there are processors")
	require.Zero(t, c.engage(9))
	c.working.Add(5) // callers may be more
	require.Zero(t, c.engage(1))
	tree := tree{mode: plain()}
	require.False(t, tree.addParallel(pattern(parallelLen), &c), "no processor is free")
	require.Zero(t, tree.groups)
	require.EqualValues(t, 9, c.working.Load())

	procs(t, 1)
	require.False(t, tree.addParallel(pattern(parallelLen), new(crew)), "there is one processor")
}

func TestHelpersThatDoNotPayPause(t *testing.T) {
	procs(t, 2)
	var c crew
	for _, pause := range []int{1, 3, 7, 15, 31, 63, 63} {
		c.learn(false)
		for range pause {
			require.Zero(t, c.engage(1))
		}
		require.Equal(t, 1, c.engage(1), "after %d writes", pause)
		c.working.Add(-1)
	}
	c.learn(true)
	c.learn(false)
	require.Zero(t, c.engage(1))
	require.Equal(t, 1, c.engage(1), "a try that paid ends the pauses")
}

// A helper that the scheduler has not begun when all is hashed finds nothing to do.
func TestLateHelper(t *testing.T) {
	in := pattern(4 * pieceLen)
	b := &batch{mode: plain(), data: in, nodes: make([]node, len(in)/groupLen)}
	b.left.Add(len(in) / pieceLen)
	require.Equal(t, len(in)/pieceLen, b.work())
	b.left.Wait()
	nodes := append([]node(nil), b.nodes...)
	clear(in)
	require.Zero(t, b.work())
	require.Equal(t, nodes, b.nodes)
}
