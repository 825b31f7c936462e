package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/shmstore"
)

// killedLedger returns a ledger of ten keys with a request that was not read, whose writer was killed, with
// what a right adoption reports.
func killedLedger() (*ledger, shmstore.Adoption, []object) {
	l := newLedger()
	var all []object
	for i := range 10 {
		o := object{Key: fmt.Sprint("k", i), ID: uint32(i)}
		l.addKey(o)
		all = append(all, o)
	}
	_, err := l.addRequest("r", all[:3], []*process{{}})
	if err != nil {
		panic(err)
	}
	l.writerEnded(true)
	return l, shmstore.Adoption{Kept: 10, InUse: 3, Epoch: 2}, all
}

func TestLedgerFindsWhatAnAdoptionLost(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(l *ledger, a *shmstore.Adoption, all []object) []object
		want   string // "" accepts it
	}{
		{"right", func(_ *ledger, _ *shmstore.Adoption, all []object) []object { return all }, ""},
		{"one key gone without a word", func(_ *ledger, _ *shmstore.Adoption, all []object) []object {
			return all[1:]
		}, ""},
		{"two keys gone without a word", func(_ *ledger, _ *shmstore.Adoption, all []object) []object {
			return all[2:]
		}, "key k"},
		{"a key gone after a detach", func(l *ledger, a *shmstore.Adoption, all []object) []object {
			l.detached, a.Clean = true, true
			return all[1:]
		}, "key k0 had id 0"},
		{"one key published without a word", func(_ *ledger, a *shmstore.Adoption, all []object) []object {
			a.Kept++
			return append(all, object{Key: "new", ID: 10})
		}, ""},
		{"two keys published without a word", func(_ *ledger, a *shmstore.Adoption, all []object) []object {
			a.Kept += 2
			return append(all, object{Key: "new", ID: 10}, object{Key: "newer", ID: 11})
		}, "was never reported"},
		{"another object under a key", func(_ *ledger, _ *shmstore.Adoption, all []object) []object {
			all[4].ID = 77
			return all
		}, "key k4 had id 4"},
		{"dropped", func(_ *ledger, a *shmstore.Adoption, all []object) []object {
			a.Dropped = 1
			return all
		}, "1 objects were dropped"},
		{"damaged", func(_ *ledger, a *shmstore.Adoption, all []object) []object {
			a.Damaged = 1
			return all
		}, "1 were damaged"},
		{"fewer kept than listed", func(_ *ledger, a *shmstore.Adoption, all []object) []object {
			a.Kept = 9
			return all
		}, "9 objects were kept"},
		{"fewer in use than in unread requests", func(_ *ledger, a *shmstore.Adoption, all []object) []object {
			a.InUse = 2
			return all
		}, "3 are in requests that were not read"},
		{"the epoch again", func(l *ledger, _ *shmstore.Adoption, all []object) []object {
			l.epoch = 2
			return all
		}, "epoch 2 follows 2"},
		{"not clean after a detach", func(l *ledger, _ *shmstore.Adoption, all []object) []object {
			l.detached = true
			return all
		}, "is not clean"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, a, all := killedLedger()
			all = c.change(l, &a, all)
			err := l.checkAdoption(a, all, true)
			if c.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.want)
			}
		})
	}
}

func TestLedgerPassesAFenceWhenEverythingBeforeIsRead(t *testing.T) {
	l, one, two := newLedger(), &process{}, &process{}
	require.True(t, l.addFence(1), "no request is unread")
	for _, id := range []string{"a", "b"} {
		_, err := l.addRequest(id, nil, []*process{one, two})
		require.NoError(t, err)
	}
	require.False(t, l.addFence(2))
	_, err := l.addRequest("behind", nil, []*process{one, two})
	require.NoError(t, err)
	for i, step := range []struct {
		id     string
		by     *process
		over   bool
		passed []int
	}{{"a", one, false, nil}, {"b", two, false, nil}, {"a", two, true, nil}, {"behind", one, false, nil},
		{"b", one, true, []int{2}}} {
		over, passed := l.markRead(step.id, step.by)
		require.Equal(t, step.over, over != nil, i)
		require.Equal(t, step.passed, passed, i)
	}
	require.False(t, l.addFence(3))
	require.Equal(t, []int{3}, l.dropRequests(), "an engine that is restarted reads nothing more")
}

func TestGrowthComparesAfterTheWarmUp(t *testing.T) {
	for _, c := range []struct {
		name  string
		leaks bool
		at    func(i int) int64
	}{
		{"steady", false, func(int) int64 { return 100 }},
		{"warm-up", false, func(i int) int64 { return int64(100 * min(i, 30)) }},
		{"peaks", false, func(i int) int64 { return 100 + int64(i%5)*1000 }},
		{"leak", true, func(i int) int64 { return int64(10 * i) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGrowth("")
			for i := range 100 {
				g.add("x", "descriptors", c.at(i))
			}
			require.Equal(t, c.leaks, len(g.check()) > 0)
		})
	}
}

func TestContentFindsEveryByte(t *testing.T) {
	seed := contentSeed("key", 7)
	whole := make([]byte, 61)
	fillContent(whole, seed, 0)
	part := make([]byte, 37)
	fillContent(part, seed, 24)
	require.Equal(t, whole[24:], part, "any part can be made by itself")
	require.NoError(t, checkContent(part, seed, 24))
	for i := range part {
		part[i] ^= 1
		require.Error(t, checkContent(part, seed, 24), i)
		part[i] ^= 1
	}
	require.Error(t, checkContent(part, contentSeed("key", 8), 24))
	require.Error(t, checkContent(part, contentSeed("another", 7), 24))
}
