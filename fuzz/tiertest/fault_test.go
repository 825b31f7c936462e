package tiertest_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/tiertest"
	"github.com/ringcache/ringcache/tier"
)

func TestFault(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	m := tiertest.NewMap(tiertest.MapOptions{})
	f := tiertest.NewFault(m)
	require.Equal(t, "map", f.Name())
	for _, name := range []string{"a", "b", "c"} {
		require.NoError(t, put(f, name, "", 3))
	}
	get := func(names ...string) []error {
		var gets []tier.Get
		for _, name := range names {
			gets = append(gets, tier.Get{Key: key(name)})
		}
		f.Get(ctx, gets)
		var errs []error
		for i, g := range gets {
			if g.Err == nil {
				require.Equal(t, names[i]+names[i]+names[i], string(g.Bytes), "in its place")
			}
			errs = append(errs, g.Err)
		}
		return errs
	}
	only := func(name string, a tiertest.Answer) func(tiertest.Call) tiertest.Answer {
		return func(c tiertest.Call) tiertest.Answer {
			if c.Key.Name == name {
				return a
			}
			return tiertest.Answer{}
		}
	}

	f.Do(only("b", tiertest.Answer{Err: tier.ErrUnavailable}))
	errs := get("a", "b", "c")
	require.NoError(t, errs[0])
	require.ErrorIs(t, errs[1], tier.ErrUnavailable)
	require.NoError(t, errs[2])
	require.ErrorIs(t, f.Stat(ctx, []tier.Key{key("b")})[0].Err, tier.ErrUnavailable)
	require.NoError(t, f.Stat(ctx, []tier.Key{key("a")})[0].Err)

	f.Fail(tier.ErrUnavailable)
	require.ErrorIs(t, f.Delete(ctx, []tier.Key{key("a")})[0], tier.ErrUnavailable)
	for _, err := range f.List(ctx, "") {
		require.ErrorIs(t, err, tier.ErrUnavailable)
	}
	require.ErrorIs(t, put(f, "x", "", 1), tier.ErrUnavailable)
	f.Fail(nil)
	require.Equal(t, []error{nil, nil}, get("a", "b"))

	f.Do(only("a", tiertest.Answer{Lose: true}))
	errs = get("a", "b")
	require.ErrorIs(t, errs[0], tier.ErrNotFound)
	require.NoError(t, errs[1])
	require.NoError(t, put(f, "a", "", 3), "lost, and reported as stored")
	require.Equal(t, int64(2), m.Usage().Objects)

	f.Do(only("b", tiertest.Answer{Damage: true}))
	errs = get("b", "c")
	require.ErrorIs(t, errs[0], tier.ErrNotFound)
	require.ErrorIs(t, errs[0], tier.ErrCorrupt)
	require.NoError(t, errs[1])
	require.Equal(t, int64(1), m.Usage().Objects)

	began, wait := make(chan bool), make(chan struct{})
	f.Do(func(tiertest.Call) tiertest.Answer {
		began <- true
		return tiertest.Answer{Wait: wait}
	})
	done := make(chan []error)
	go func() { done <- get("c") }()
	<-began
	close(wait)
	require.Equal(t, []error{nil}, <-done)

	f.Do(func(tiertest.Call) tiertest.Answer {
		began <- true
		return tiertest.Answer{Hang: true}
	})
	go func() { done <- get("c") }()
	<-began
	cancel()
	require.Equal(t, []error{context.Canceled}, <-done)

	require.Equal(t, 6, f.Calls("Get"))
	require.Equal(t, 11, f.Elements("Get"))
	require.Equal(t, 1, f.Calls("List"))
	require.NoError(t, f.Close())
}
