package mmcache

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/serde"
)

// thenDo is a transactor with something that happens right after the end of a transaction.
type thenDo struct {
	transactor
	then func()
}

func (d thenDo) end(t *transaction, how ending) {
	d.transactor.end(t, how)
	d.then()
}

// There is no moment at which neither the hold nor its request has the item: what is evicted as soon as the hold ends is
// the request's by then.
func TestHoldEndsWhenItsRequestHasTheItem(t *testing.T) {
	for _, mode := range []string{modeProcessorOnly, modeSHM} {
		t.Run(mode, func(t *testing.T) {
			c, err := Open(Options{Mode: mode, Capacity: 1 << 20, Shared: SharedOptions{Dir: t.TempDir(), Name: "mm", Readers: 1}})
			require.NoError(t, err)
			want := Want{Key: "a", Bytes: 100, Modality: "image"}
			first, err := c.Begin(t.Context(), "first", want)
			require.NoError(t, err)
			_, err = first.Item(t.Context(), "a", Ready(&serde.Item{Modality: "image", Elems: []serde.Elem{
				{Key: "pixels", Data: &serde.Tensor{DType: "uint8", Shape: []int{2}, Data: []byte{1, 2}}},
			}}, nil))
			require.NoError(t, err)
			first.Rollback()

			h, ok, err := c.Lookup(t.Context(), "a")
			require.NoError(t, err)
			require.True(t, ok)
			ended := 0
			h.tx.transactor = thenDo{h.tx.transactor, func() { ended++; c.Invalidate("a") }}
			r, err := h.Begin(t.Context(), "r", want)
			require.NoError(t, err)
			require.Equal(t, 1, ended)
			it, err := r.Item(t.Context(), "a", func(context.Context, *Builder) error { return errors.New("it was made already") })
			require.NoError(t, err)
			require.True(t, it.Hit)
			r.Rollback()
			require.NoError(t, c.CheckStructure())
			require.NoError(t, c.Close())
		})
	}
}
