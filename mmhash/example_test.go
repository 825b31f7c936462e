package mmhash_test

import (
	"fmt"
	"strings"

	"github.com/ringcache/ringcache/mmhash"
	"github.com/ringcache/ringcache/pycompat"
)

// The key of an image that a client sent, as vLLM's own frontend would name it.
func ExampleHasher_Key() {
	h, err := mmhash.NewHasher(mmhash.Options{}) // the newest vLLM; blake3
	if err != nil {
		fmt.Println(err)
		return
	}
	image := mmhash.Identity{
		ModelID: "Qwen/Qwen2.5-VL-3B-Instruct", Modality: "image",
		Item:            &mmhash.EncodedImage{Data: []byte("the bytes of a JPEG file")},
		ProcessorKwargs: []mmhash.Entry{{Key: "min_pixels", Value: 784}},
	}
	key, err := h.Key(image)
	fmt.Println(key, err)

	image.UUID = "client-7" // hashed in place of the item ...
	key, err = h.Key(image)
	fmt.Println(key, err)
	image.ProcessorKwargs = nil // ... or believed
	key, err = h.Key(image)
	fmt.Println(key, err)
	// Output:
	// a74ffc7f06e422c673a646af7fb5b145fb497a36f17989eb84ba3be7b6be975e <nil>
	// 8641d5902480cddf3d6958f2fa727d1875e9cc8a27d03bee13825daa52349610 <nil>
	// client-7 <nil>
}

// What other releases hash can be seen.
func ExampleWriteStream() {
	old, err := pycompat.Lookup("0.20.2")
	if err != nil {
		fmt.Println(err)
		return
	}
	var b strings.Builder
	err = mmhash.WriteStream(&b, old, mmhash.Entry{Key: "text", Value: []any{"yes", "no"}})
	fmt.Println(b.String(), err)
	// Output: text.0yestext.1no <nil>
}

// A file is hashed while it is read.
func ExampleReader() {
	body := strings.NewReader("the bytes of a JPEG file")
	h, err := mmhash.NewHasher(mmhash.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	read, err := h.Hex(mmhash.Entry{Key: "image", Value: &mmhash.EncodedImage{Reader: &mmhash.Reader{R: body, N: body.Size()}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	whole, err := h.Hex(mmhash.Entry{Key: "image", Value: &mmhash.EncodedImage{Data: []byte("the bytes of a JPEG file")}})
	fmt.Println(read == whole, err)
	// Output: true <nil>
}

// Two tenants that send the same file, or name the same UUID, share nothing.
func ExampleNativeKey() {
	for _, tenant := range []string{"red", "blue"} {
		scope := mmhash.Scope{Tenant: tenant, Model: "m", Modality: "image"}
		key, err := mmhash.NativeKey(scope, "client-7", []byte("the bytes of a JPEG file"))
		fmt.Println(key[:16], err)
	}
	// Output:
	// 1f1d3e034db66729 <nil>
	// aa2828c19fa777ce <nil>
}
