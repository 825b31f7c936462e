package lrusync_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/lrusync"
)

// sendOnly makes a request for keys with data, and returns it as the receiver would get it.
func (p pair) sendOnly(t *testing.T, keys ...string) (lrusync.Envelope, []lrusync.Feature[int64]) {
	t.Helper()
	var items []lrusync.Item
	for _, k := range keys {
		items = append(items, lrusync.Item{Key: k, Size: 4, HasData: true})
	}
	tk, err := p.Send(ctx, items, queue)
	require.NoError(t, err)
	return tk.Envelope, features(items, tk)
}

// A transport may deliver the newest request twice. The second copy is served, changes nothing and is no drift.
func TestSecondCopyOfTheNewestRequest(t *testing.T) {
	p := newPair(t, lrusync.Options{Capacity: 10})
	for _, keys := range [][]string{{"a"}, {"b", "a"}, {"c"}} {
		e, fs := p.sendOnly(t, keys...)
		for range 3 {
			res, err := p.r.Receive(e, fs)
			require.NoError(t, err)
			require.Nil(t, res.Drift)
			require.Empty(t, res.Missing)
		}
		p.requireEqual(t, keys)
	}
}

// The sender repairs its mirror after what the receiver reported. A request that was late, and would now be in order,
// must not change that.
func TestContentsStayAsReportedUntilTheRepair(t *testing.T) {
	p := newPair(t, lrusync.Options{Capacity: 10})
	e, fs := p.sendOnly(t, "a")
	_, err := p.r.Receive(e, fs)
	require.NoError(t, err)
	late, itsFeatures := p.sendOnly(t, "b")
	e, fs = p.sendOnly(t, "c")
	res, err := p.r.Receive(e, fs)
	require.NoError(t, err)
	require.NotNil(t, res.Drift)
	reported := res.Drift.Contents

	res, err = p.r.Receive(late, itsFeatures)
	require.NoError(t, err)
	require.NotNil(t, res.Drift)
	require.Equal(t, reported, res.Drift.Contents)
	contents, _ := p.r.Contents()
	require.Equal(t, reported, contents)

	require.True(t, p.Repair(*res.Drift))
	e, fs = p.sendOnly(t, "d")
	res, err = p.r.Receive(e, fs)
	require.NoError(t, err)
	require.Nil(t, res.Drift)
	p.requireEqual(t)
}

// A report of a miss comes late: the item was sent again meanwhile, and the receiver has it.
func TestMissOfWhatWasSentAgain(t *testing.T) {
	p := newPair(t, lrusync.Options{Capacity: 10})
	first, fs := p.sendOnly(t, "a")
	_, err := p.r.Receive(first, fs)
	require.NoError(t, err)
	p.Missed(first, []string{"a"})
	again, fs := p.sendOnly(t, "a")
	require.True(t, fs[0].HasData)
	require.Equal(t, first.Seq+1, again.Seq)
	p.Missed(first, []string{"a"})
	require.Equal(t, []bool{true}, cached(p.Sender, "a"), "the report is older than the item")
	p.Missed(again, []string{"a"})
	require.Equal(t, []bool{false}, cached(p.Sender, "a"))
}

// Peers that count an item differently evict differently sooner or later. That shows at the next request already.
func TestAnotherSizeIsDrift(t *testing.T) {
	p := newPair(t, lrusync.Options{Capacity: 10})
	e, fs := p.sendOnly(t, "a")
	fs[0].Size++
	res, err := p.r.Receive(e, fs)
	require.NoError(t, err)
	require.Nil(t, res.Drift)
	e, fs = p.sendOnly(t, "b")
	res, err = p.r.Receive(e, fs)
	require.NoError(t, err)
	require.NotNil(t, res.Drift)
	require.True(t, p.Repair(*res.Drift))
	e, fs = p.sendOnly(t, "c")
	res, err = p.r.Receive(e, fs)
	require.NoError(t, err)
	require.Nil(t, res.Drift)
	p.requireEqual(t)
}
