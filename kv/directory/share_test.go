package directory

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// relay tells a directory all that has changed in another one. Every change that fail picks fails first.
func relay(t *testing.T, from, to *Directory, fail func(n int) bool) (told int) {
	for n := 0; ; {
		changes := from.Changes(1000)
		if len(changes) == 0 {
			return told
		}
		for i, c := range changes {
			if n++; fail(n) {
				for _, c := range changes[i:] { // as what comes behind it does
					from.Failed(c)
				}
				break
			}
			kept, err := to.Follow(c)
			require.NoError(t, err)
			require.False(t, kept)
			told++
		}
		require.NoError(t, from.Validate())
		require.NoError(t, to.Validate())
	}
}

func never(int) bool { return false }

// TestChangesWithoutRoom: a worker of which more has changed than is remembered is told again in full, and reports that
// come meanwhile are told, too.
func TestChangesWithoutRoom(t *testing.T) {
	a, b := New(Options{Shared: true}), New(Options{Shared: true})
	id := ID{"engine", 0}
	require.NoError(t, a.Register(Worker{ID: id}))
	reports := make([]Report, maxTouched+1000)
	for i := range reports {
		reports[i] = Report{Key: NumberKey(uint64(i)), Number: int64(i)}
	}
	require.NoError(t, a.Apply(id, "cpu", reports))
	require.Zero(t, a.touched)
	begun := a.Changes(1) // the beginning of all
	require.NotEmpty(t, begun)
	for _, c := range begun {
		_, err := b.Follow(c)
		require.NoError(t, err)
	}
	next := int64(len(reports))
	require.NoError(t, a.Apply(id, "cpu", []Report{
		{Key: NumberKey(5), Evicted: true, Number: next}, {Key: NumberKey(7), Evicted: true, Number: next + 1},
	}))
	relay(t, a, b, never)
	require.Equal(t, len(reports)-2, b.Counts().Entries)
	require.False(t, b.Holds(id, "cpu", NumberKey(5)))
	require.False(t, b.Find([]Key{NumberKey(1)}, Query{})[0].Stale)
	require.Zero(t, a.touched)
	validate(t, b)
}

// TestChangesThatFail: what could not be told is told later, whatever failed, and cleared locations are empty.
func TestChangesThatFail(t *testing.T) {
	a, b := New(Options{Shared: true}), New(Options{Shared: true})
	for n := range int64(3) {
		id := ID{"engine", n}
		require.NoError(t, a.Register(Worker{ID: id}))
		require.NoError(t, a.Apply(id, "cpu", admitted(1, 2, 3)))
	}
	relay(t, a, b, func(n int) bool { return n == 1 || n == 3 })
	require.Equal(t, 9, b.Counts().Entries)
	require.NoError(t, a.StartSync(ID{"engine", 0}, "cpu", "s", 1))
	require.NoError(t, a.SyncBatch(ID{"engine", 0}, "cpu", "s", 0, keys(4)))
	a.Again(ID{"engine", 1})
	require.True(t, a.Deregister(ID{"engine", 2}))
	relay(t, a, b, func(n int) bool { return n%2 == 1 && n < 9 })
	require.Equal(t, 4, b.Counts().Entries)
	require.Len(t, b.Workers(""), 2)
	require.True(t, b.Find(keys(4), Query{}) == nil, "worker 1 has it not")
	require.True(t, b.Holds(ID{"engine", 0}, "cpu", NumberKey(4)))
	require.NoError(t, a.EndSync(ID{"engine", 0}, "s"))
	relay(t, a, b, never)
	for _, d := range []*Directory{a, b} {
		reason, err := d.Heartbeat(Worker{ID: ID{"engine", 0}})
		require.NoError(t, err)
		require.Empty(t, reason)
	}
	validate(t, a)
	validate(t, b)
}

// TestFollowWithoutRoom: a directory that has no room for all that is told says of the location that it is stale, and
// goes on saying so.
func TestFollowWithoutRoom(t *testing.T) {
	a, b := New(Options{Shared: true}), New(Options{Shared: true, MaxEntries: 2})
	id := ID{"engine", 0}
	require.NoError(t, a.Register(Worker{ID: id}))
	require.NoError(t, a.Apply(id, "cpu", admitted(1, 2, 3)))
	for _, c := range a.Changes(100) {
		_, err := b.Follow(c)
		require.ErrorIs(t, err, ErrFull)
	}
	require.NoError(t, a.Apply(id, "cpu", []Report{{Key: NumberKey(1), Evicted: true, Number: -1}}))
	relay(t, a, b, never)
	require.True(t, b.Find(keys(2), Query{})[0].Stale)
	reason, err := b.Heartbeat(Worker{ID: id})
	require.NoError(t, err)
	require.Equal(t, reportsLost, reason)
	validate(t, b)
}
