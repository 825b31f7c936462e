package mmhash

import (
	"fmt"
	"testing"
)

func BenchmarkAppendHex(b *testing.B) {
	for _, size := range []int{4 << 10, 256 << 10, 16 << 20} {
		file := make([]byte, size)
		for _, a := range []Algorithm{BLAKE3, SHA256, SHA512} {
			b.Run(fmt.Sprintf("%v/%dKiB", a, size>>10), func(b *testing.B) {
				h, err := NewHasher(Options{Algorithm: a})
				if err != nil {
					b.Fatal(err)
				}
				dst := make([]byte, 0, 128)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := h.AppendHex(dst, Arg("model_id", Str("m")), Arg("image", &EncodedImage{Data: file})); err != nil {
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
		if _, err := NativeKey(Scope{"t", "m", "image"}, "u", Bytes(file)); err != nil {
			b.Fatal(err)
		}
	}
}
