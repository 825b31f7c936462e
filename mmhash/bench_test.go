package mmhash

import (
	"fmt"
	"testing"
)

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
