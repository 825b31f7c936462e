package objstore_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
)

// A frontend: a known image gets another handle, a new one is decoded in place.
func Example_frontend() {
	gen, err := pycompat.Lookup("0.33.0") // the version of the vLLM workers
	if err != nil {
		log.Fatal(err)
	}
	w, err := objstore.CreatePool(objstore.Options{
		RingSize: 1 << 20, MaxObjectSize: 1 << 16, Readers: 2, Generation: gen,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer w.Abandon() // removes the segment, whatever is open

	send := func(id, key string, layout *serde.Item, decode func(pixels []byte)) (objstore.Request, error) {
		req, err := w.Begin(id) // what it uses stays until it ends
		if err != nil {
			return nil, err
		}
		defer req.Rollback()      // nothing after Commit
		h, err := req.Lookup(key) // one more use of a known image
		if errors.Is(err, objstore.ErrNotFound) {
			r, err := req.Reserve(key, layout, objstore.PutOptions{}) // dtypes and shapes, no data yet
			if err != nil {
				return nil, err // ErrFull, ErrTooLarge: send the data inline
			}
			defer r.Discard() // nothing after Commit
			decode(r.Tensor("pixel_values"))
			if h, err = r.Commit(); err != nil {
				return nil, err
			}
		} else if err != nil {
			return nil, err
		}
		message, err := serde.EncodeAddress(h, "image", serde.Options{Generation: gen})
		if err != nil {
			return nil, err
		}
		fmt.Println("handle", h.Address, h.ID, len(message) > 100) // the signature's bytes vary
		return req, req.Commit()                                   // sent
	}

	layout := &serde.Item{Elems: []serde.Elem{{
		Key:  "pixel_values",
		Data: &serde.Tensor{DType: "uint8", Shape: []int{32, 32}},
	}}}
	for i := range 2 {
		req, err := send(fmt.Sprint("request-", i), "photo-1", layout, func(pixels []byte) { fmt.Println("decoding", len(pixels), "bytes") })
		if err != nil {
			log.Fatal(err)
		}
		req.Finish() // when the engine has answered; or req.Abort()
	}
	// Output:
	// decoding 1024 bytes
	// handle 32 0 true
	// handle 32 0 true
}

// A writer and a reader, which would be in different processes.
func Example() {
	name := fmt.Sprintf("ringcache-example-%d", os.Getpid())
	w, err := objstore.CreatePool(objstore.Options{Name: name, RingSize: 1 << 20, MaxObjectSize: 1 << 16, Readers: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer w.Abandon() // removes the segment
	request, err := w.Begin("request-1")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer request.Rollback() // does nothing after Commit

	// Fill the tensor where it will be read.
	r, err := request.Reserve("photo-1", &serde.Item{Elems: []serde.Elem{{
		Key:  "pixel_values",
		Data: &serde.Tensor{DType: "uint8", Shape: []int{2, 2}},
	}}}, objstore.PutOptions{})
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
	view, err := reader.Get("photo-1", handle)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer view.Release()
	pixels := view.Item().Elems[0].Data.(*serde.Tensor)
	fmt.Println(pixels.DType, pixels.Shape, pixels.Data, view.Check())
	// Output: uint8 [2 2] [1 2 3 4] <nil>
}

// A store whose readers are all of this library, in processes of their own: they
// count under the lock of the sidecar, and acknowledge what they have read.
func Example_withoutVLLM() {
	ctx := context.Background()
	name := fmt.Sprintf("ringcache-example-own-%d", os.Getpid())
	w, err := objstore.CreatePool(objstore.Options{
		Name: name, RingSize: 1 << 20, Readers: 1,
		TrustCounts: true, // a handle is read once by each reader
	})
	if err != nil {
		log.Fatal(err)
	}
	defer w.Abandon() // removes the segment, whatever is open

	reader, err := objstore.Open(name, objstore.ReaderOptions{RingSize: 1 << 20, Readers: 1, SidecarLock: true})
	if err != nil {
		log.Fatal(err)
	}
	read := func(h serde.Address, key string) {
		view, err := reader.Get(key, h)
		if err != nil {
			log.Fatal(err)
		}
		defer view.Release()
		fmt.Println(view.Value().(*serde.Tensor).Data, view.Check())
	}

	tensor := &serde.Tensor{DType: "uint8", Shape: []int{4}, Data: []byte("text")}
	first, err := w.Begin("first")
	if err != nil {
		log.Fatal(err)
	}
	h, err := first.Put("document-1", tensor, objstore.PutOptions{})
	if err != nil {
		log.Fatal(err)
	}
	if err := first.Commit(); err != nil { // the handle is about to be sent
		log.Fatal(err)
	}
	read(h, "document-1")
	first.Finish() // the reader has answered

	second, err := w.Begin("second")
	if err != nil {
		log.Fatal(err)
	}
	if _, err = second.Lookup("document-1"); err != nil {
		log.Fatal(err)
	}
	if err := second.Commit(); err != nil {
		log.Fatal(err)
	}
	second.Abort() // given up after its handle was sent: the reader may still resolve it
	fence := w.Fence()
	// ... the reader acknowledges a message that was sent behind the handle ...
	fence.Passed()
	evicted, err := w.Evict("document-1")
	fmt.Println("evicted", evicted, err)

	if err := reader.Close(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(w.Shutdown(ctx))
	// Output:
	// [116 101 120 116] <nil>
	// evicted true <nil>
	// <nil>
}
