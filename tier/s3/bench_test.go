package s3

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/s3test"
	"github.com/ringcache/ringcache/tier"
)

// benchSizes are a chunk of a small model, an image's embedding, and a large chunk.
var benchSizes = []int{16 << 10, 2600 << 10, 34 << 20}

// BenchmarkLevel reads and writes single objects, in turns with a bare client of the same store, which reads
// into the same memory, computes no checksum, and sends the same bytes without one. It reports the median and
// the 99th percentile of both, and the ratio of the medians.
func BenchmarkLevel(b *testing.B) {
	s := s3test.Start(b)
	l := open(b, options(s.URL("bench")))
	for _, size := range benchSizes {
		o := object(fmt.Sprint(size), size)
		bytesOf := content(o.Name, size)
		put := func() {
			p := []tier.Put{{Object: o, Bytes: bytesOf}}
			l.Put(b.Context(), p)
			require.NoError(b, p[0].Err)
		}
		bare := minio.PutObjectOptions{DisableContentSha256: true}
		_, err := l.client.PutObject(b.Context(), s3test.Bucket, "bare", bytes.NewReader(bytesOf), int64(size), "", "", bare)
		require.NoError(b, err)
		put()
		memory := make([]byte, size)
		gets := []tier.Get{{Key: o.Key, Into: func(tier.Object) ([]byte, error) { return memory, nil }}}
		pair(b, fmt.Sprint("load/", size), size, func() {
			l.Get(b.Context(), gets)
			require.NoError(b, gets[0].Err)
		}, func() {
			var o minio.GetObjectOptions
			o.Set("Range", fmt.Sprintf("bytes=0-%d", size-1)) // the transport bounds other answers
			body, _, _, err := l.client.GetObject(b.Context(), s3test.Bucket, "bare", o)
			require.NoError(b, err)
			_, err = io.ReadFull(body, memory)
			require.NoError(b, err)
			_, _ = body.Read(make([]byte, 1))
			body.Close()
		}, func() {})
		pair(b, fmt.Sprint("save/", size), size, put, func() {
			_, err := l.client.PutObject(b.Context(), s3test.Bucket, "bare", bytes.NewReader(bytesOf), int64(size), "", "", bare)
			require.NoError(b, err)
		}, func() {
			require.NoError(b, l.client.RemoveObject(b.Context(), s3test.Bucket, l.settings.keyOf(o.Key), minio.RemoveObjectOptions{}))
			require.NoError(b, l.client.RemoveObject(b.Context(), s3test.Bucket, "bare", minio.RemoveObjectOptions{}))
		})
	}
	b.Run("load of 64 at a time/16384", func(b *testing.B) {
		gets := make([]tier.Get, 64)
		for i := range gets {
			o := object(fmt.Sprint("small ", i), 16<<10)
			for _, err := range tryPut(b.Context(), l, o) {
				require.NoError(b, err)
			}
			gets[i] = tier.Get{Key: o.Key}
		}
		n := 0
		for b.Loop() {
			l.Get(b.Context(), gets)
			require.NoError(b, gets[0].Err)
			n += len(gets)
		}
		b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "requests/s")
	})
}

// pair times two functions in turns, with a third one before each.
func pair(b *testing.B, name string, size int, ours, bare, before func()) {
	b.Run(name, func(b *testing.B) {
		var times [2][]time.Duration
		for b.Loop() {
			for i, fn := range []func(){ours, bare} {
				before()
				began := time.Now()
				fn()
				times[i] = append(times[i], time.Since(began))
			}
		}
		for i, who := range []string{"ours", "bare"} {
			slices.Sort(times[i])
			n := len(times[i])
			b.ReportMetric(float64(times[i][n/2].Microseconds())/1000, "p50-ms-"+who)
			b.ReportMetric(float64(times[i][n*99/100].Microseconds())/1000, "p99-ms-"+who)
			b.ReportMetric(float64(size)/times[i][n/2].Seconds()/1e9, "GB/s-"+who)
		}
		b.ReportMetric(float64(times[0][len(times[0])/2])/float64(times[1][len(times[1])/2]), "ratio")
	})
}
