package serde

import (
	"bytes"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// equalItem compares and treats a NaN as equal to itself.
func equalItem(t testing.TB, want, got *Item) {
	t.Helper()
	require.Equal(t, want.Modality, got.Modality)
	require.Len(t, got.Elems, len(want.Elems))
	for i := range want.Elems {
		w, g := want.Elems[i], got.Elems[i]
		require.Equal(t, w.Key, g.Key)
		require.True(t, equalData(w.Data, g.Data), "elem %q: want %v, got %v", w.Key, w.Data, g.Data)
		require.Equal(t, w.Field, g.Field, "elem %q", w.Key)
	}
}

func equalData(a, b any) bool {
	switch a := a.(type) {
	case *Tensor:
		b, ok := b.(*Tensor)
		return ok && equalTensor(a, b)
	case float64:
		b, ok := b.(float64)
		return ok && math.Float64bits(a) == math.Float64bits(b)
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !equalData(a[i], b[i]) {
				return false
			}
		}
		return true
	}
	return a == b
}

func equalTensor(a, b *Tensor) bool {
	if a.DType != b.DType || len(a.Shape) != len(b.Shape) || !bytes.Equal(a.Data, b.Data) {
		return false
	}
	for i := range a.Shape {
		if a.Shape[i] != b.Shape[i] {
			return false
		}
	}
	return true
}
