package shmring

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckStructureFinds(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(*Ring)
		what   string
	}{
		"overwritten header": {func(r *Ring) { r.buf[0]++ }, "the header at 0"},
		"wrong size":         {func(r *Ring) { r.buf[4]++ }, "the header at 0"},
		"missing":            {func(r *Ring) { delete(r.live, 1) }, "id 1 is in the window but not live"},
		"start":              {func(r *Ring) { r.start += uint64(r.Size()) }, "start 100 is not below the size 100"},
		"end":                {func(r *Ring) { r.end-- }, "the newest chunk ends at 40, the ring at 39"},
		"moved":              {func(r *Ring) { r.live[1] = extent{5, 20} }, "id 1"},
		"not reset":          {func(r *Ring) { clear(r.live); r.idStart = r.idEnd }, "empty, but start 0 and end 40 are not 0"},
	} {
		t.Run(name, func(t *testing.T) {
			r := NewRing(make([]byte, 100), RingOptions{})
			alloc(t, r, 12, 0, 0)
			alloc(t, r, 12, 20, 1)
			require.NoError(t, r.CheckStructure())
			c.damage(r)
			require.ErrorContains(t, r.CheckStructure(), c.what)
		})
	}
}
