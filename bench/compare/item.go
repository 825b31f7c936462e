package main

import (
	"encoding/binary"

	"github.com/ringcache/ringcache/serde"
)

// patch is the values of one row of pixel_values: 3 colours, 2 frames, 14 by 14 pixels.
const patch = 3 * 2 * 14 * 14

// shapeOf returns the shape of pixel_values with about size bytes. Python's side uses the same one.
func shapeOf(size int) (rows, columns int) {
	if size < 2*patch {
		return 1, max(1, size/2)
	}
	return size / (2 * patch), patch
}

// qwenItem is an item as the processor of Qwen2-VL makes it for one image: patches and their grid.
func qwenItem(size int) *serde.Item {
	rows, columns := shapeOf(size)
	pixels := make([]byte, rows*columns*2)
	for i := range pixels { // no page of it is the kernel's page of zeros
		pixels[i] = byte(i*7 + i>>8)
	}
	grid := make([]byte, 24)
	for i, n := range []uint64{1, 1, uint64(rows)} {
		binary.LittleEndian.PutUint64(grid[8*i:], n)
	}
	return &serde.Item{Elems: []serde.Elem{
		{Key: "pixel_values", Data: &serde.Tensor{DType: "bfloat16", Shape: []int{rows, columns}, Data: pixels},
			Field: serde.FlatFromSizes(rows)},
		{Key: "image_grid_thw", Data: &serde.Tensor{DType: "int64", Shape: []int{3}, Data: grid},
			Field: serde.Field{Kind: serde.Batched, KeepOnCPU: true}},
	}}
}

func tensorOf(it *serde.Item, i int) *serde.Tensor { return it.Elems[i].Data.(*serde.Tensor) }
