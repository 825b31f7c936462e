package objstore_test

import (
	"fmt"
	"os"

	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/serde"
)

// A writer and a reader, which would be in different processes.
func Example() {
	name := fmt.Sprintf("ringcache-example-%d", os.Getpid())
	w, err := objstore.Create(objstore.Options{Name: name, RingSize: 1 << 20, MaxObjectSize: 1 << 16, Readers: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer w.Close() // also removes the segment

	// Fill the tensor where it will be read.
	r, err := w.Reserve("photo-1", &serde.Item{Elems: []serde.Elem{{
		Key:  "pixel_values",
		Data: &serde.Tensor{DType: serde.DTypeUint8, Shape: []int{2, 2}},
	}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Discard() // does nothing after Commit
	copy(r.Tensor("pixel_values"), []byte{1, 2, 3, 4})
	handle, err := r.Commit()
	if err != nil {
		fmt.Println(err)
		return
	}

	reader, err := objstore.Open(name, objstore.ReaderOptions{RingSize: 1 << 20, Readers: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer reader.Close()
	view, err := reader.Get(handle, "photo-1")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer view.Release()
	pixels := view.Item().Elems[0].Data.(*serde.Tensor)
	fmt.Println(pixels.DType, pixels.Shape, pixels.Data, view.Check())
	// Output: uint8 [2 2] [1 2 3 4] <nil>
}
