package serde

import (
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// samePlan compares what a Plan shows and writes.
func samePlan(t require.TestingT, want, got *Plan) {
	require.Equal(t, want.Metadata, got.Metadata)
	require.Equal(t, want.DataLen, got.DataLen)
	require.Equal(t, want.Complete(), got.Complete())
	require.Equal(t, want.Frames(), got.Frames())
	require.Len(t, got.Tensors, len(want.Tensors))
	for i := range want.Tensors {
		require.Equal(t, want.Tensors[i], got.Tensors[i])
	}
	a, b := seq(want.DataLen, 3, 1), seq(want.DataLen, 3, 1)
	require.NoError(t, want.CopyTo(a))
	require.NoError(t, got.CopyTo(b))
	require.Equal(t, a, b)
}

// TestPropertyPlanReset: a Plan that is used again is the Plan that NewPlan makes,
// whatever it was before, also after an error.
func TestPropertyPlanReset(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var plan Plan
		for range rapid.IntRange(1, 6).Draw(t, "values") {
			o := drawOptions(t)
			var v Value
			switch rapid.IntRange(0, 5).Draw(t, "value") {
			case 0:
				v = drawTensor(t)
			case 1:
				v = Pickle(rapid.SliceOfN(rapid.Byte(), 0, 10).Draw(t, "pickle"))
			case 2:
				v = &Item{Modality: "image", Elems: []Elem{{Key: "a", Data: drawTensor(t)}, {Key: "b", Data: []any{drawTensor(t), nil}}}}
			case 3:
				v = strip(drawItem(t, o.Generation.ItemForm))
			default:
				v = drawItem(t, o.Generation.ItemForm)
			}
			want, wantErr := NewPlan(v, o)
			err := plan.Reset(v, o)
			require.Equal(t, wantErr, err)
			if err != nil {
				want = &Plan{}
			}
			samePlan(t, want, &plan)
		}
		plan.Clear()
		samePlan(t, &Plan{}, &plan)
	})
}

// TestPlanKeepsNothingAfterClear: its memory has no reference to a tensor any more.
func TestPlanKeepsNothingAfterClear(t *testing.T) {
	var plan Plan
	it := &Item{}
	for _, key := range []string{"a", "b", "c", "d", "e"} {
		it.Elems = append(it.Elems, Elem{Key: key, Data: zeros("uint8", 300)})
	}
	for _, items := range []*Item{it, {Elems: it.Elems[:2]}} {
		require.NoError(t, plan.Reset(items, Options{}))
		places := plan.Tensors[:cap(plan.Tensors)]
		frames := plan.mp.Aux()
		require.Len(t, frames, len(items.Elems))
		plan.Clear()
		for _, p := range places {
			require.Zero(t, p)
		}
		for _, f := range frames[:cap(frames)] {
			require.Nil(t, f)
		}
	}
}

// TestPlanThatGrewKeepsNothingAfterClear: neither does the memory from which it grew away.
func TestPlanThatGrewKeepsNothingAfterClear(t *testing.T) {
	var plan Plan
	it := &Item{}
	for i := range len(plan.room) + 1 {
		it.Elems = append(it.Elems, Elem{Key: string(rune('a' + i)), Data: zeros("uint8", 300)})
	}
	require.NoError(t, plan.Reset(it, Options{}))
	var collected atomic.Int64
	for i := range it.Elems {
		runtime.AddCleanup(&it.Elems[i].Data.(*Tensor).Data[0], func(int) { collected.Add(1) }, 0)
	}
	want := int64(len(it.Elems))
	it = nil
	plan.Clear()
	for range 100 {
		if runtime.GC(); collected.Load() == want {
			break
		}
		runtime.Gosched()
	}
	require.Equal(t, want, collected.Load())
	runtime.KeepAlive(&plan)
}
