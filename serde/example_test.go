package serde_test

import (
	"fmt"

	"github.com/ringcache/ringcache/serde"
)

// A producer lays an item out first, and writes the tensor where it is to lie.
func ExampleNewPlan() {
	item := &serde.Item{Elems: []serde.Elem{{
		Key:   "pixel_values",
		Data:  &serde.Tensor{DType: "uint8", Shape: []int{2, 200}}, // no Data yet
		Field: serde.FlatFromSizes(2),
	}}}
	plan, err := serde.NewPlan(item, serde.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	data := make([]byte, plan.DataLen) // in a server: memory of the segment
	if err := plan.CopyTo(data); err != nil {
		fmt.Println(err)
		return
	}
	for _, p := range plan.Tensors {
		dst := data[p.Offset : p.Offset+p.Len : p.Offset+p.Len]
		for i := range dst {
			dst[i] = 7
		}
		fmt.Println(p.Key, p.Len, "bytes, inline:", p.Inline)
	}

	meta, _, err := serde.ParseMetadata(plan.Metadata)
	if err != nil {
		fmt.Println(err)
		return
	}
	value, err := serde.DecodeValue(meta, data, serde.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	elem, _ := value.(*serde.Item).Lookup("pixel_values")
	t := elem.Data.(*serde.Tensor)
	fmt.Println(meta.Type, t.DType, t.Shape, t.Data[0])
	// Output:
	// pixel_values 400 bytes, inline: false
	// MultiModalKwargsItem uint8 [2 200] 7
}
