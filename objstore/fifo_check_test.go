package objstore

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/invariants"
)

// Builds that check invariants do so after a change.
func TestChangesAreChecked(t *testing.T) {
	s := newStore(t, Options{RingSize: 1000, MaxObjectSize: 900, Readers: 1})
	h, err := s.Put("a", image(100, 1))
	require.NoError(t, err)
	f, o := s.fifo, s.fifo.objects[h.ID]
	saved := *o
	look := func() { s.Cached("a") }
	for name, c := range map[string]struct {
		damage, mend, change func()
		text                 string
	}{
		"leases":    {func() { f.leases++ }, func() { f.leases-- }, look, "store: 0 leases of requests, 1 in all"},
		"bytes":     {func() { o.size += 1000 }, func() { o.size -= 1000 }, look, fmt.Sprintf("store: chunks of %d bytes, %d in use of 1000", saved.size+1000, saved.size)},
		"key":       {func() { delete(f.index, "a") }, func() { f.index["a"] = o }, look, "store: key \"a\" is not indexed\nstore: 0 keys and 0 pending for 1 committed and 0 reserved objects"},
		"counts":    {func() {}, func() { *o = saved }, func() { o.counts.sent(1) }, "1 uses, -1 of them not sent"},
		"committed": {func() {}, func() {}, func() { f.fifoTable.commit(o) }, `objstore: object 0 of key "a" goes from state 1 to 1`},
		"live id":   {func() {}, func() { delete(f.pending, "a") }, func() { f.fifoTable.reserve(o) }, "objstore: id 0 is given out, and live"},
	} {
		t.Run(name, func(t *testing.T) {
			c.damage()
			defer c.mend()
			if !invariants.Enabled {
				require.NotPanics(t, c.change)
				return
			}
			require.PanicsWithError(t, "broken invariant: "+c.text, c.change)
		})
	}
}
