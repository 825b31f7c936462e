package litmus_test

import (
	"encoding/binary"
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/internal/shmfile"
)

var rounds = flag.Int("rounds", 0, "rounds of each program, each over 500 cells; 0 is 100, or as many as a quarter of a second has")

const (
	cells  = 500 // of a round
	stride = 256 // bytes from cell to cell, several cache lines

	spins  = 1 << 16               // of a side that waits, before it gives its processor away
	pause  = 50 * time.Microsecond // for which it does so
	pauses = 20                    // after which it goes on alone
	absent = 5                     // rounds in a row in which the sides did not meet, after which a program ends
)

// program is a litmus program. Both sides go through the cells of a round, and meet at each.
type program struct {
	name string
	// prepare sets a cell before a round, in which no side runs. It runs where left does.
	prepare func(cell int)
	// left and right are the two sides.
	left, right func(cell int)
	// forbidden reports after a round whether the outcome in a cell must not be.
	forbidden func(cell int) bool
	// control: the program leaves out what makes the outcome impossible, or relies on what no processor
	// promises. Its count is printed, and nothing is asserted.
	control bool
	// slow programs run a tenth as often.
	slow bool
}

// counts is what came of a program.
type counts struct {
	runs      int
	met       int // runs in which both sides came to the cell at the same time
	forbidden int
}

// lead runs the left side, and prepares and judges the rounds. follow runs the right side at the same time.
func (p program) lead(b board) (n counts) {
	runtime.LockOSThread() // each side is a thread, so that no scheduler but the kernel's parts them
	defer runtime.UnlockOSThread()
	defer mem.Store32(b.round(), over)
	last, end := uint32(*rounds), time.Time{}
	if last == 0 {
		last, end = 100, time.Now().Add(time.Second/4) // a loaded machine has few moments in which both sides run
	}
	if p.slow {
		last = max(last/10, 1)
	}
	lost := 0
	for round := uint32(1); round <= last && lost < absent && (round == 1 || end.IsZero() || time.Now().Before(end)); round++ {
		for c := range cells {
			p.prepare(c)
		}
		mem.Store32(b.round(), round)
		met := b.walk(0, round, p.left)
		for !await(b.finished(), round) {
			if mem.Load32(b.gone()) != 0 {
				return n
			}
		}
		if lost++; met > 0 {
			lost = 0
		}
		n.runs += cells
		n.met += met
		for c := range cells {
			if p.forbidden(c) {
				n.forbidden++
			}
		}
	}
	return n
}

// follow runs the right side until lead has ended.
func follow(b board, right func(cell int)) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer mem.Store32(b.gone(), 1)
	for round := uint32(1); ; round++ {
		for !await(b.round(), round) {
		}
		if mem.Load32(b.round()) == over {
			return
		}
		b.walk(1, round, right)
		mem.Store32(b.finished(), round)
	}
}

// run runs both sides in this process.
func (p program) run() (n counts) {
	b := make(board, boardSize)
	var group sync.WaitGroup
	group.Go(func() { follow(b, p.right) })
	group.Go(func() { n = p.lead(b) })
	group.Wait()
	return n
}

// over is the round after the last.
const over = 1<<32 - 1

// board is where the sides meet: words in memory that both have, two processes as well.
type board []byte

// The words of a board: the round, the last round that the right side has finished, whether that side
// has ended, and the last round in which each side came to each cell.
func (b board) round() []byte    { return b[0:4] }
func (b board) finished() []byte { return b[64:68] }
func (b board) gone() []byte     { return b[128:132] }
func (b board) here(side, c int) []byte {
	return b[192+4*(side*cells+c):][:4]
}

const boardSize = 192 + 4*2*cells

// walk leads a side through the cells, and returns how often the other came to the same one.
func (b board) walk(side int, round uint32, access func(cell int)) (met int) {
	together := true // else the other side does not run now: no side waits for the rest of the round
	random := round*2654435761 + uint32(side)
	for c := range cells {
		if mem.Store32(b.here(side, c), round); together {
			if together = await(b.here(1-side, c), round); together {
				met++
			}
		}
		// One side or the other a little later: the one that came last begins a cache miss earlier.
		random ^= random << 13
		random ^= random >> 17
		random ^= random << 5
		for range random % 128 {
			mem.Load32(b.gone())
		}
		access(c)
	}
	return met
}

// await waits until a word has come to n, but not for long: there may be one processor only. It
// reports whether it has.
func await(word []byte, n uint32) bool {
	for range pauses {
		for range spins {
			if mem.Load32(word) >= n {
				return true
			}
		}
		time.Sleep(pause)
	}
	return false
}

func (p program) test(t *testing.T) {
	t.Helper()
	p.report(t, p.run())
}

// report prints a row of the table.
func (p program) report(t *testing.T, n counts) {
	t.Helper()
	kind := "must be 0"
	switch {
	case n.met == 0:
		kind = "not shown: the sides never met"
	case p.control:
		kind = "reported"
	}
	t.Logf("| %-5s | %-79s | %8d | %8d | %6d | %s |", runtime.GOARCH, p.name, n.runs, n.met, n.forbidden, kind)
	if !p.control {
		require.Zero(t, n.forbidden, "forbidden outcomes of %q on %s with %d processors", p.name, runtime.GOARCH,
			runtime.GOMAXPROCS(0))
	}
}

// shared returns two mappings of one file of n bytes, as two processes have them.
func shared(t *testing.T, n int) (a, b []byte) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "shared"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	require.NoError(t, f.Truncate(int64(n)))
	var out [2][]byte
	for i := range out {
		m, err := shmfile.Map(f, int64(n), true)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, shmfile.Unmap(m)) })
		out[i] = m
	}
	return out[0], out[1]
}

// arena is the memory of a program: chunks, words beside them, and what the right side saw, which
// the left reads after the round.
type arena struct{ chunks, words, saw []byte }

const arenaSize = 3 * cells * stride

func newArena(m []byte) arena {
	const n = cells * stride
	return arena{m[:n], m[n : 2*n], m[2*n : 3*n]}
}

// id and address are those of the chunk of a cell.
func id(c int) uint32      { return uint32(c) }
func address(c int) uint64 { return uint64(c * stride) }

func (a arena) chunk(c int) []byte { return a.chunks[c*stride : (c+1)*stride] }
func (a arena) word(c int) []byte  { return a.words[c*stride : c*stride+4] }

// see notes what the right side saw in a cell.
func (a arena) see(c int, id uint32, payload uint64) {
	le.PutUint32(a.saw[c*stride:], id)
	le.PutUint64(a.saw[c*stride+8:], payload)
}

func (a arena) seen(c int) (id uint32, payload uint64) {
	return le.Uint32(a.saw[c*stride:]), le.Uint64(a.saw[c*stride+8:])
}

// le makes plain accesses, as a program makes them that takes no care.
var le = binary.LittleEndian
