package folder

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"
	"testing"

	"github.com/ringcache/ringcache/fuzz/tiertest"
	"github.com/ringcache/ringcache/tier"
)

// pair is two levels over one folder as one: calls go to one and the other in turn.
type pair struct {
	levels [2]*Level
	calls  atomic.Uint32
}

func (p *pair) next() *Level { return p.levels[p.calls.Add(1)%2] }

func (p *pair) Name() string { return p.levels[0].Name() }

func (p *pair) Stat(ctx context.Context, keys []tier.Key) []tier.Found {
	return p.next().Stat(ctx, keys)
}

func (p *pair) Get(ctx context.Context, gets []tier.Get) { p.next().Get(ctx, gets) }

func (p *pair) Put(ctx context.Context, puts []tier.Put) { p.next().Put(ctx, puts) }

func (p *pair) Delete(ctx context.Context, keys []tier.Key) []error {
	return p.next().Delete(ctx, keys)
}

func (p *pair) List(ctx context.Context, space string) iter.Seq2[tier.Object, error] {
	return p.next().List(ctx, space)
}

func (p *pair) Usage() tier.Usage {
	u, other := p.levels[0].Usage(), p.levels[1].Usage()
	u.Corrupt += other.Corrupt
	u.Evicted += other.Evicted
	return u
}

func (p *pair) Close() error { return errors.Join(p.levels[0].Close(), p.levels[1].Close()) }

// TestTwoLevels: two levels over one folder, whose caches agree, are as good as one. The suite compares histories of
// several goroutines with what one level could have answered in some order.
func TestTwoLevels(t *testing.T) {
	open := func(t testing.TB, dir string) tier.Level {
		return &pair{levels: [2]*Level{openAt(t, dir, Options{}), openAt(t, dir, Options{})}}
	}
	tiertest.Level(t, tiertest.Options{
		Unlimited: true,
		Histories: 2,
		Open:      func(t testing.TB, _ int64) tier.Level { return open(t, t.TempDir()) },
		Reopen:    func(t testing.TB, closed tier.Level) tier.Level { return open(t, closed.(*pair).levels[0].path) },
		Without: []string{
			"pending while written", // what another process is writing, nobody knows
		},
	})
}
