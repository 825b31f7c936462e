package engine_test

import (
	"testing"

	"github.com/ringcache/ringcache/engine/enginetest"
)

// BenchmarkGenerate is a request from Begin to its last token, one at a time, with the
// stand-in's work in it.
func BenchmarkGenerate(b *testing.B) {
	for _, c := range []struct {
		name     string
		mode     string
		children int
		keys     []string
	}{
		{"text", "none", 1, nil},
		{"text/n=16", "none", 16, nil},
		{"image/lru", "lru", 1, []string{"a"}},
		{"image/shm", "shm", 1, []string{"a"}},
		{"image/shm/n=16", "shm", 16, []string{"a"}},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := newRig(b, setup{mode: c.mode, engine: func(o *enginetest.Options) { o.MaxNumSeqs = 16 }})
			r.ctx = b.Context()
			r.ask(1, c.keys...)
			b.ReportAllocs()
			for b.Loop() {
				q := r.request(1, c.keys...)
				q.Params["n"] = c.children
				s, err := r.Generate(r.ctx, q)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := s.Collect(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
