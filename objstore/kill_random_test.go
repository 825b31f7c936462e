package objstore

import (
	"bufio"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/fault"
	"github.com/ringcache/ringcache/internal/shmfile"
	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/segment"
)

var (
	killRounds     = flag.Int("rounds", 80, "TestKillAtRandomInstants kills so many writers")
	killRoundsSeed = flag.Uint64("rounds.seed", 0, "seed of TestKillAtRandomInstants; 0 makes one up")
)

// TestKillAtRandomInstants kills writers wherever they are, and damages the sidecar
// after some of the kills. Each time the segment is adopted, and
//   - its structure and every byte of every object in it are right;
//   - a handle that was ever issued leads to its own bytes or to an error, whatever
//     room producers fill and in which order;
//   - what a request needs stays, unless the sidecar was damaged: then the adoption
//     reports that something was lost;
//   - ids rise.
//
// Nothing is left in the end.
func TestKillAtRandomInstants(t *testing.T) {
	seed := *killRoundsSeed
	for seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-rounds.seed %d", seed)
	for i, rereads := range []bool{true, false} {
		t.Run(fmt.Sprintf("rereads %v", rereads), func(t *testing.T) {
			t.Parallel()
			k := &randomKiller{t: t, rng: rand.New(rand.NewPCG(seed, uint64(i))), name: killName(t, "random"), rereads: rereads}
			k.run((*killRounds + 1 - i) / 2)
		})
	}
}

// randomKiller has one segment, whose writers are killed one after the other.
type randomKiller struct {
	t       *testing.T
	rng     *rand.Rand
	name    string
	rereads bool
	m       *killModel
	look    *Reader
	next    *fault.Process // started, and waiting for its turn
	history []killHandle   // issued in this segment, ended or not

	n struct {
		kills, adoptedByChild, damaged, kept, inUse, dropped, damagedUse, replaced, lost, oldRead, oldRefused int
	}
}

func (k *randomKiller) run(rounds int) {
	t := k.t
	k.create()
	k.next = k.start()
	for i := range rounds {
		k.kill()
		damaged := k.rng.IntN(3) == 0
		if damaged {
			k.damage()
		}
		if w := k.adopt(damaged); w != nil {
			k.judge(w, damaged)
		}
		require.False(t, t.Failed(), "round %d", i)
	}
	t.Logf("%+v", k.n)
	if rounds >= 20 {
		require.NotZero(t, k.n.adoptedByChild, "no writer got far")
		require.NotZero(t, k.n.damaged)
		require.NotZero(t, k.n.inUse)
		require.NotZero(t, k.n.oldRefused)
	}
	if rounds >= 200 { // of fewer, all damage may have been harmless
		require.NotZero(t, k.n.dropped)
		require.NotZero(t, k.n.damagedUse)
	}
	require.NoError(t, k.next.In.Close()) // it ends without a turn
	for k.next.Out.Scan() {
	}
	require.NoError(t, k.next.Wait())
	require.NoError(t, k.look.Close())
	w, _, err := adoptPool(killOptions(k.name, k.rereads))
	require.NoError(t, err)
	w.Fence().Passed()
	require.Zero(t, used(t, w))
	require.Zero(t, w.Len())
	require.NoError(t, w.CheckStructure())
	require.NoError(t, w.Close())
	requireNoFiles(t, k.name)
}

// create makes a new segment, and forgets what was known of an old one.
func (k *randomKiller) create() {
	t := k.t
	if k.look != nil {
		require.NoError(t, k.look.Close())
	}
	w, err := pool.create(killOptions(k.name, k.rereads))
	require.NoError(t, err)
	require.NoError(t, w.Detach())
	k.look, err = Open(k.name, killReaderOptions(false))
	require.NoError(t, err)
	k.m, k.history = newKillModel(k.rereads), nil
}

func (k *randomKiller) start() *fault.Process {
	return startChild(k.t, killOrder{Role: "random", Name: k.name, Seed: k.rng.Uint64(), Rereads: k.rereads, Place: anywhere})
}

// randomChild is a writer that begins on a line of its parent. It is started early, since
// starting takes longer than most rounds.
func randomChild(o killOrder) error {
	if !bufio.NewScanner(os.Stdin).Scan() {
		return nil
	}
	return writerChild(o)
}

// kill lets a writer work for a random time and kills it. The time begins when it was
// told to begin, so that some are killed while they adopt, or with one of its first
// lines: how far it comes is no matter of how fast the machine is.
func (k *randomKiller) kill() {
	t, p := k.t, k.next
	k.next = k.start()
	_, err := p.In.Write([]byte("go\n"))
	require.NoError(t, err)
	kill := func() { _ = p.Kill() } // by its pid, and not if it was waited for
	lines, wait := 1+k.rng.IntN(400), time.Duration(k.rng.Int64N(int64(2*time.Millisecond)))
	if k.rng.IntN(5) == 0 {
		lines, wait = -1, 10*wait
		time.AfterFunc(wait, kill)
	}
	for p.Out.Scan() {
		if lines--; lines == 0 {
			time.AfterFunc(wait, kill)
		}
		h, err := k.m.hear(p.Out.Text())
		require.NoError(t, err)
		if h != nil {
			k.history = append(k.history, h.killHandle)
		}
	}
	require.NoError(t, p.WaitKilled())
	k.n.kills++
	if k.m.adoption != nil {
		k.n.adoptedByChild++
	}
	k.m.died(anywhere)
	if n := len(k.history) - 300; n > 0 {
		k.history = k.history[n:]
	}
}

// damage changes bits and words of the sidecar, those of its table most of all.
func (k *randomKiller) damage() {
	t := k.t
	k.n.damaged++
	f, err := os.OpenFile(filepath.Join(shmfile.DefaultDir, k.name+sidecar.Suffix), os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	st, err := f.Stat()
	require.NoError(t, err)
	const marks, slots, states = 4096, 8192, 1024
	o := killOptions(k.name, k.rereads)
	table := int64(slots + 2048*o.ReaderSlots)
	for range 1 + k.rng.IntN(3) {
		from, to := table, st.Size()
		switch n := k.rng.IntN(40); {
		case n == 0:
			from, to = 0, states // the header
		case n < 6:
			from, to = states, states+128
		case n < 7:
			from, to = marks, marks+int64(o.ReaderSlots+7)/8*8
		case n < 8:
			from, to = slots, table
		}
		at := from + k.rng.Int64N((to-from)/8)*8
		var b [8]byte
		_, err := f.ReadAt(b[:], at)
		require.NoError(t, err)
		word := binary.LittleEndian.Uint64(b[:])
		switch k.rng.IntN(8) {
		case 0:
			word = 0
		case 1:
			word = k.rng.Uint64()
		case 2:
			word = ^word
		default:
			word ^= 1 << k.rng.IntN(64)
		}
		binary.LittleEndian.PutUint64(b[:], word)
		_, err = f.WriteAt(b[:], at)
		require.NoError(t, err)
	}
}

// adopt adopts the segment. If the damage makes that impossible, it follows the
// advice of the error, makes a new segment, and returns nil.
func (k *randomKiller) adopt(damaged bool) *writer {
	t := k.t
	w, a, err := adoptPool(killOptions(k.name, k.rereads))
	if damaged && err != nil {
		var bad *sidecar.FormatError
		require.ErrorAs(t, err, &bad)
		got, err := segment.Sweep(segment.SweepOptions{Prefix: k.name, AnyOwner: true, Remove: true})
		require.NoError(t, err)
		require.Len(t, got, 1)
		if len(filesOf(t, k.name)) > 0 { // its identity or its version is damaged
			require.Error(t, got[0].Err)
			for _, f := range filesOf(t, k.name) {
				require.NoError(t, os.Remove(f))
			}
		}
		k.n.replaced++
		k.create()
		return nil
	}
	require.NoError(t, err)
	k.n.kept += a.Kept
	k.n.inUse += a.InUse
	k.n.dropped += a.Dropped
	k.n.damagedUse += a.Damaged
	require.NoError(t, w.CheckStructure())
	index, err := checkAdopted(w, k.look)
	require.NoError(t, err)
	if !damaged {
		require.Zero(t, a.Damaged)
		require.NoError(t, k.m.adopted(a))
		require.NoError(t, k.m.compare(index))
		return w
	}
	require.Greater(t, a.Epoch, k.m.epoch)
	require.False(t, a.Clean && !k.m.mayBeGone, "its writer was killed")
	k.m.epoch, k.m.mayBeGone = a.Epoch, false
	missing := -k.m.lost
	for key, id := range k.m.index {
		if index[key] != id {
			missing++
		}
	}
	require.LessOrEqual(t, missing, a.Dropped+a.Damaged, "keys are lost without a word: %+v", a)
	k.m.lost, k.m.unknown, k.m.back = 0, 0, ""

	// What is in flight is there, or is reported.
	lost, there := map[uint32]bool{}, k.m.handles[:0]
	for _, h := range k.m.handles {
		err := h.look(k.look)
		requireRightOrRefused(t, err)
		if err == nil {
			there = append(there, h)
		} else {
			lost[h.h.ID] = true
		}
	}
	k.m.handles = there
	k.n.lost += len(lost)
	require.LessOrEqual(t, len(lost), a.Dropped, "what requests need is lost without a word: %+v", a)
	return w
}

func requireRightOrRefused(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		require.True(t, errors.Is(err, ErrStale) || errors.Is(err, ErrCorrupt) || errors.Is(err, ErrBadSignature), "%v", err)
	}
}

// judge takes all room that can be had, as producers do, and looks at every handle
// meanwhile. Then it ends the writer, by plan or not.
func (k *randomKiller) judge(w *writer, damaged bool) {
	t := k.t
	if damaged || k.rng.IntN(2) == 0 {
		k.fill(w)
	}
	for _, h := range k.m.handles {
		require.NoError(t, h.look(k.look), "in flight: %v", h)
	}
	if k.rng.IntN(8) == 0 {
		w.Fence().Passed()
		k.m.handles = nil
	}
	require.NoError(t, w.CheckStructure())
	_, index, err := killObjects(w)
	require.NoError(t, err)
	k.m.index = index
	k.m.floor = k.m.maxID
	if k.m.mayBeGone = k.rng.IntN(2) == 0; k.m.mayBeGone {
		require.NoError(t, w.Detach())
	} else {
		abandon(t, w)
	}
}

// fill reserves all room, and writes into it behind the headers that stood there
// once: a producer fills its object in any order.
func (k *randomKiller) fill(w *writer) {
	t := k.t
	var all []*Reservation
	for n := 64 << 10; n >= 64; n /= 4 {
		for {
			r, err := w.Reserve(fmt.Sprintf("room %d", len(all)), killItem(n, nil))
			if err != nil {
				require.ErrorIs(t, err, ErrFull)
				break
			}
			all = append(all, r)
			_, id := r.Place()
			require.Greater(t, int64(id), k.m.maxID, "ids rise")
			k.m.maxID = int64(id)
		}
	}
	for _, h := range k.history {
		// Somewhere in its last third, which is data.
		at := h.h.Address + shmring.HeaderSize + uint64(h.n-h.n/6)
		for _, r := range all {
			if b := reservedBytes(w, r, at); len(b) > 0 {
				b[0] ^= 0x55
			}
		}
	}
	require.NoError(t, w.CheckStructure())
	for _, h := range k.history {
		err := h.look(k.look)
		requireRightOrRefused(t, err)
		if err == nil {
			k.n.oldRead++
		} else {
			k.n.oldRefused++
		}
	}
	for _, h := range k.m.handles {
		require.NoError(t, h.look(k.look), "in flight: %v", h)
	}
	for _, r := range all {
		r.Discard()
	}
}
