package shmring

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/mem"
)

func TestPoolRestoreRefusesWhatCannotBe(t *testing.T) {
	good := Chunk{Address: 32, ID: 1, Size: 64}
	for name, c := range map[string]struct {
		in, want []Chunk
	}{
		"one":            {[]Chunk{good}, []Chunk{good}},
		"not aligned":    {[]Chunk{good, {Address: 100, ID: 2, Size: 64}}, []Chunk{good}},
		"in front":       {[]Chunk{good, {Address: 0, ID: 2, Size: 32}}, []Chunk{good}},
		"behind the end": {[]Chunk{good, {Address: 928, ID: 2, Size: 65}}, []Chunk{good}},
		"far away":       {[]Chunk{good, {Address: 1 << 62, ID: 2, Size: 64}}, []Chunk{good}},
		"no size":        {[]Chunk{good, {Address: 160, ID: 2, Size: 8}}, []Chunk{good}},
		"no id":          {[]Chunk{good, {Address: 160, ID: IDLimit, Size: 80}}, []Chunk{good}},
		"overlap":        {[]Chunk{good, {Address: 160, ID: 2, Size: 190}, {Address: 224, ID: 3, Size: 10}, {Address: 352, ID: 4, Size: 10}}, []Chunk{good, {Address: 352, ID: 4, Size: 10}}},
		"one id twice":   {[]Chunk{good, {Address: 160, ID: 2, Size: 20}, {Address: 224, ID: 2, Size: 10}}, []Chunk{good}},
		"up to the end":  {[]Chunk{{Address: 928, ID: 2, Size: 64}, good}, []Chunk{good, {Address: 928, ID: 2, Size: 64}}},
	} {
		t.Run(name, func(t *testing.T) {
			m := make([]byte, 1000)
			p := NewPool(m, PoolOptions{DataOffset: 32})
			require.Equal(t, c.want, p.Restore(c.in, 5))
			for _, x := range c.want {
				mem.Store32(m[x.Address+sizeOffset:], uint32(x.Size))
				p.Publish(x.ID)
			}
			require.NoError(t, p.CheckStructure())
		})
	}
}
