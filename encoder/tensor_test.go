package encoder_test

import (
	"context"
	"errors"
	"io/fs"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/encoder"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/tier"
)

func TestSaveAndLoad(t *testing.T) {
	ctx, l := context.Background(), newMapLevel()
	k := tier.Key{Space: "gemma", Name: "abc"}
	tensor := &serde.Tensor{DType: "bfloat16", Shape: []int{2, 3}, Data: []byte("twelve bytes")}
	require.NoError(t, encoder.Save(ctx, l, tier.Object{Key: k, Tenant: "t", Cost: time.Second}, tensor))
	require.Equal(t, tier.Object{Key: k, Size: 12, Tenant: "t", Cost: time.Second, Note: []byte("bfloat16 2 3")}, l.objects[k])
	got, err := encoder.Load(ctx, l, k)
	require.NoError(t, err)
	require.Equal(t, tensor, got)
	require.NoError(t, encoder.Save(ctx, l, tier.Object{Key: k}, tensor), "it is there already")

	_, err = encoder.Load(ctx, l, tier.Key{Space: "gemma", Name: "other"})
	require.ErrorIs(t, err, tier.ErrNotFound)
	broken := errors.New("broken")
	l.onGet = func(tier.Object) error { return broken }
	_, err = encoder.Load(ctx, l, k)
	require.ErrorIs(t, err, broken)
	l.onGet, l.onPut = nil, func(tier.Object) error { return tier.ErrFull }
	require.ErrorIs(t, encoder.Save(ctx, l, tier.Object{Key: k}, tensor), tier.ErrFull)
}

func TestSaveRefuses(t *testing.T) {
	l := newMapLevel()
	for name, tensor := range map[string]*serde.Tensor{
		"too few bytes": {DType: "bfloat16", Shape: []int{2, 3}, Data: make([]byte, 11)},
		"no bytes":      {DType: "bfloat16", Shape: []int{2, 3}},
		"unknown dtype": {DType: "bf16", Shape: []int{1}, Data: make([]byte, 2)},
		"negative":      {DType: "uint8", Shape: []int{-1}},
	} {
		require.ErrorIs(t, encoder.Save(context.Background(), l, tier.Object{Key: tier.Key{Name: "a"}}, tensor), fs.ErrInvalid, name)
	}
	require.Empty(t, l.objects)
}

func TestLoadRefusesWhatIsNoTensor(t *testing.T) {
	l := newMapLevel()
	for name, note := range map[string]string{"none": "", "other": "chunk 3", "of another size": "uint8 13"} {
		k := tier.Key{Name: name}
		put := []tier.Put{{Object: tier.Object{Key: k, Size: 12, Note: []byte(note)}, Bytes: make([]byte, 12)}}
		l.Put(context.Background(), put)
		require.NoError(t, put[0].Err)
		_, err := encoder.Load(context.Background(), l, k)
		require.ErrorIs(t, err, fs.ErrInvalid, name)
	}
}
