package safetensors_test

import (
	"fmt"

	"github.com/ringcache/ringcache/encoder/safetensors"
)

func Example() {
	tensors := []safetensors.Tensor{
		{Name: "mask", DType: "BOOL", Shape: []int{3}},
		{Name: "ec_cache", DType: "BF16", Shape: []int{2, 4}},
	}
	file, err := safetensors.AppendHeader(nil, map[string]string{"writer": "example"}, tensors)
	if err != nil {
		panic(err)
	}
	for _, t := range tensors { // now in the order of the file
		file = append(file, make([]byte, t.Size)...)
	}

	header, err := safetensors.Parse(file)
	if err != nil {
		panic(err)
	}
	fmt.Println(header.Metadata)
	for _, t := range header.Tensors {
		fmt.Println(t.Name, t.DType, t.Shape, len(t.Bytes(file)))
	}
	// Output:
	// map[writer:example]
	// ec_cache BF16 [2 4] 16
	// mask BOOL [3] 3
}
