package tier_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/tiertest"
	"github.com/ringcache/ringcache/tier"
)

// copyAll copies all objects, and returns what was reported about each.
func copyAll(t *testing.T, to, from tier.Level) (map[string]tier.Copied, error) {
	t.Helper()
	reports := map[string]tier.Copied{}
	done, all := 0, 0
	err := tier.Copy(t.Context(), to, from, "", func(d, a int) {
		require.Greater(t, d, done)
		done, all = d, a
	}, func(c tier.Copied) error {
		_, twice := reports[c.Object.Name]
		require.False(t, twice, "%s is reported twice", c.Object.Name)
		reports[c.Object.Name] = c
		return nil
	})
	if err == nil {
		require.Equal(t, 2*len(reports), all)
		require.Equal(t, all, done)
	}
	return reports, err
}

func TestCopy(t *testing.T) {
	from, to := tiertest.NewMap(tiertest.MapOptions{Name: "from"}), tiertest.NewMap(tiertest.MapOptions{Name: "to"})
	parent := ""
	for i := range 200 { // more than a batch
		name := fmt.Sprint("o", i)
		require.NoError(t, put(from, name, parent, int64(i*37)))
		parent = name
	}
	require.NoError(t, put(to, "o7", "o6", 7*37))
	require.NoError(t, put(to, "o8", "o7", 9))
	require.NoError(t, put(from, "large", "", 9<<20))
	require.NoError(t, put(from, "damaged", "", 100))
	from.Damage(key("damaged"))

	var order []string
	seen := tiertest.NewFault(to)
	seen.Do(func(c tiertest.Call) tiertest.Answer {
		if is(c, "Put") {
			order = append(order, c.Key.Name)
		}
		return tiertest.Answer{}
	})
	reports, err := copyAll(t, seen, from)
	require.NoError(t, err)
	require.True(t, reports["o7"].There)
	require.ErrorContains(t, reports["o8"].Err, "remove one of them")
	require.ErrorIs(t, reports["damaged"].Err, tier.ErrCorrupt)
	place := map[string]int{}
	for i, name := range order {
		place[name] = i
	}
	for name, c := range reports {
		if name == "o7" || name == "o8" || name == "damaged" {
			continue
		}
		require.NoError(t, c.Err)
		require.False(t, c.There)
		g := []tier.Get{{Key: key(name)}}
		to.Get(t.Context(), g)
		require.NoError(t, g[0].Err)
		require.Equal(t, content(name, c.Object.Size), g[0].Bytes)
		require.Equal(t, c.Object, g[0].Object)
		if at, ok := place[c.Object.Parent]; ok {
			require.Less(t, at, place[name], "the parent of %s comes first", name)
		}
	}
	reports, err = copyAll(t, to, from)
	require.NoError(t, err)
	there := 0
	for _, c := range reports {
		if c.There {
			there++
		}
	}
	require.Equal(t, 200, there, "all but the one of another size and the damaged one")
}

// TestCopyIsVerified: a level that says yes, and has nothing, something else, or no room for all.
func TestCopyIsVerified(t *testing.T) {
	from := tiertest.NewMap(tiertest.MapOptions{Name: "from"})
	for i := range 10 {
		require.NoError(t, put(from, fmt.Sprint("o", i), "", 100))
	}
	count := func(to tier.Level) (good int, last error) {
		reports, err := copyAll(t, to, from)
		require.NoError(t, err)
		for _, c := range reports {
			if c.Err == nil {
				good++
			} else {
				last = c.Err
			}
		}
		return good, last
	}
	good, err := count(tiertest.NewMap(tiertest.MapOptions{Name: "small", Capacity: 450}))
	require.Equal(t, 4, good)
	require.ErrorContains(t, err, "is the level too small?")

	lossy := tiertest.NewFault(tiertest.NewMap(tiertest.MapOptions{Name: "lossy"}))
	lossy.Do(func(c tiertest.Call) tiertest.Answer {
		return tiertest.Answer{Lose: is(c, "Put") && c.Key.Name == "o3"}
	})
	good, err = count(lossy)
	require.Equal(t, 9, good)
	require.ErrorIs(t, err, tier.ErrNotFound)

	good, err = count(&otherBytes{tiertest.NewMap(tiertest.MapOptions{Name: "other"})})
	require.Equal(t, 9, good)
	require.ErrorIs(t, err, tier.ErrCorrupt)
}

// otherBytes has, in place of o3, other bytes with a checksum that is right.
type otherBytes struct{ *tiertest.Map }

func (l *otherBytes) Put(ctx context.Context, puts []tier.Put) {
	for i, p := range puts {
		if p.Object.Name == "o3" {
			puts[i].Bytes = make([]byte, p.Object.Size)
		}
	}
	l.Map.Put(ctx, puts)
}

// TestCopyGoesOn: a level goes away in the midst of a copy. The next one does the rest.
func TestCopyGoesOn(t *testing.T) {
	from, to := tiertest.NewMap(tiertest.MapOptions{Name: "from"}), tiertest.NewMap(tiertest.MapOptions{Name: "to"})
	for i := range 200 {
		require.NoError(t, put(from, fmt.Sprint("o", i), "", 100))
	}
	away := tiertest.NewFault(to)
	puts := 0
	away.Do(func(c tiertest.Call) tiertest.Answer {
		if is(c, "Put") {
			puts++
		}
		if puts > 100 {
			return tiertest.Answer{Err: fmt.Errorf("test: %w", tier.ErrUnavailable)}
		}
		return tiertest.Answer{}
	})
	reports, err := copyAll(t, away, from)
	require.ErrorIs(t, err, tier.ErrUnavailable)
	require.Len(t, reports, 63, "nothing is said of what was not verified")
	for _, c := range reports {
		require.ErrorIs(t, c.Err, tier.ErrUnavailable)
	}
	reports, err = copyAll(t, to, from)
	require.NoError(t, err)
	there := 0
	for _, c := range reports {
		require.NoError(t, c.Err)
		if c.There {
			there++
		}
	}
	require.Equal(t, 100, there)

	stop := errors.New("stop")
	require.ErrorIs(t, tier.Copy(t.Context(), to, from, "", nil, func(tier.Copied) error { return stop }), stop)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, tier.Copy(ctx, to, from, "", nil, func(tier.Copied) error { return nil }), context.Canceled)
}

// TestCopyOfAListWithAnError: the level lists what it can read, and then the error. What it has listed is
// copied.
func TestCopyOfAListWithAnError(t *testing.T) {
	from, to := tiertest.NewMap(tiertest.MapOptions{Name: "from"}), tiertest.NewMap(tiertest.MapOptions{Name: "to"})
	for i := range 10 {
		require.NoError(t, put(from, fmt.Sprint("o", i), "", 100))
	}
	reports, err := copyAll(t, to, &halfListed{from})
	require.ErrorIs(t, err, tier.ErrUnavailable)
	require.ErrorContains(t, err, "not all objects of level from could be listed")
	require.Len(t, reports, 10)
	for _, c := range reports {
		require.NoError(t, c.Err)
	}
}

type halfListed struct{ *tiertest.Map }

func (l *halfListed) List(ctx context.Context, space string) iter.Seq2[tier.Object, error] {
	return func(yield func(tier.Object, error) bool) {
		for o, err := range l.Map.List(ctx, space) {
			if !yield(o, err) {
				return
			}
		}
		yield(tier.Object{}, tier.ErrUnavailable)
	}
}

// TestCopyPassesOneUnreadableObject: it has failed, and the others are copied.
func TestCopyPassesOneUnreadableObject(t *testing.T) {
	from, to := tiertest.NewFault(tiertest.NewMap(tiertest.MapOptions{Name: "from"})), tiertest.NewMap(tiertest.MapOptions{Name: "to"})
	for i := range 200 {
		require.NoError(t, put(from, fmt.Sprint("o", i), "", 100))
	}
	from.Do(func(c tiertest.Call) tiertest.Answer {
		if c.Key.Name == "o50" {
			return tiertest.Answer{Err: fmt.Errorf("test: %w", tier.ErrUnavailable)}
		}
		return tiertest.Answer{}
	})
	reports, err := copyAll(t, to, from)
	require.NoError(t, err)
	require.Len(t, reports, 200)
	for name, c := range reports {
		if name == "o50" {
			require.ErrorIs(t, c.Err, tier.ErrUnavailable)
		} else {
			require.NoError(t, c.Err)
		}
	}
}

// TestCopyThatIsCancelled says nothing of objects that nobody has tried.
func TestCopyThatIsCancelled(t *testing.T) {
	for _, call := range []string{"Get", "Put"} {
		from, to := tiertest.NewFault(tiertest.NewMap(tiertest.MapOptions{Name: "from"})), tiertest.NewFault(tiertest.NewMap(tiertest.MapOptions{Name: "to"}))
		for i := range 30 {
			require.NoError(t, put(from, fmt.Sprint("o", i), "", 100))
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for _, l := range []*tiertest.Fault{from, to} {
			l.Do(func(c tiertest.Call) tiertest.Answer {
				if is(c, call) {
					cancel()
				}
				return tiertest.Answer{}
			})
		}
		err := tier.Copy(ctx, to, from, "", nil, func(c tier.Copied) error {
			require.NoError(t, c.Err)
			return nil
		})
		require.ErrorIs(t, err, context.Canceled, call)
	}
}
