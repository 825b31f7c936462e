package mmhash

import (
	"bytes"
	"fmt"
	"testing"
)

// BenchmarkMedia hashes what a frontend is given, by vLLM's newest rules. Run it once with -cpu 1 and once with -cpu 2: with
// both at once, what uses b.Loop runs on the processors of the benchmark before.
// cd bench && go run ./hash has Python's times beside it.
func BenchmarkMedia(b *testing.B) {
	for name, size := range map[string]int{"64KiB": 64 << 10, "3MiB": 3 << 20} {
		data, from := make([]byte, size), new(bytes.Reader)
		for kind, item := range map[string]any{
			"file":   &EncodedImage{Data: data},
			"reader": &EncodedImage{Reader: &Reader{from, int64(size)}},
			"pixels": &Image{Mode: "L", Width: 256, Height: size / 256, Pixels: data},
			"array":  &Array{"<f4", []int{size / 1024, 256}, data},
		} {
			b.Run(name+"/"+kind, func(b *testing.B) {
				h, err := NewHasher(Options{})
				if err != nil {
					b.Fatal(err)
				}
				dst := make([]byte, 0, 64)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					from.Reset(data)
					if _, err := h.AppendHex(dst, arg("model_id", "m"), arg("image", item)); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkAppendHex(b *testing.B) {
	for _, size := range []int{4 << 10, 256 << 10, 16 << 20} {
		file := make([]byte, size)
		for _, a := range []string{"blake3", "sha256", "sha512"} {
			b.Run(fmt.Sprintf("%s/%dKiB", a, size>>10), func(b *testing.B) {
				h, err := NewHasher(Options{Algorithm: a})
				if err != nil {
					b.Fatal(err)
				}
				dst := make([]byte, 0, 128)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := h.AppendHex(dst, arg("model_id", "m"), arg("image", &EncodedImage{Data: file})); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkNativeKey(b *testing.B) {
	file := make([]byte, 256<<10)
	b.SetBytes(int64(len(file)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := NativeKey(Scope{"t", "m", "image"}, "u", file); err != nil {
			b.Fatal(err)
		}
	}
}
