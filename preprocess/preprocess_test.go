package preprocess

import (
	"bytes"
	"context"
	"crypto/sha256"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/objstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func images(t testing.TB) map[string][]byte {
	out := map[string][]byte{}
	files, err := os.ReadDir(filepath.Join("testdata", "images"))
	require.NoError(t, err)
	for _, f := range files {
		out[f.Name()] = readImage(t, "images/"+f.Name())
	}
	require.Greater(t, len(out), 50)
	return out
}

// TestProducer makes items in a cache, in shared memory and not.
func TestProducer(t *testing.T) {
	ctx := t.Context()
	for _, mode := range []string{"lru", "shm"} {
		t.Run(mode, func(t *testing.T) {
			const size = 16 << 20
			o := mmcache.Options{Mode: mode, Capacity: size, Shared: mmcache.SharedOptions{Readers: 1, Name: "preprocess", Dir: t.TempDir()}}
			cache, err := mmcache.Open(o)
			require.NoError(t, err)
			defer func() { require.NoError(t, cache.Close()) }()
			for run := range runs {
				p, file := processorOf(t, run), readImage(t, "images/exif-6.jpg")
				l, want, err := process(p, file)
				require.NoError(t, err)
				n, err := lrusync.ItemSize(l.Item, o.Python)
				require.NoError(t, err)
				require.Equal(t, n, l.Bytes, "what a Want needs")

				req, err := cache.Begin(ctx, run, mmcache.Want{Key: run, Bytes: l.Bytes, Modality: "image"})
				require.NoError(t, err)
				_, err = req.Item(ctx, run, Producer(p, file, l))
				require.NoError(t, err)
				require.NoError(t, req.Commit(ctx, func(b mmcache.Batch) error {
					w := b.Items[0]
					if mode == "lru" {
						require.Equal(t, want, w.Item())
						return nil
					}
					r, err := objstore.Open(cache.(*mmcache.Shared).Name(), objstore.ReaderOptions{Dir: o.Shared.Dir, RingSize: size, Readers: 1, Lock: new(lock)})
					require.NoError(t, err)
					v, err := r.Get(w.Key, *w.Handle)
					require.NoError(t, err)
					require.Equal(t, want.Elems, v.Item().Elems)
					require.NoError(t, v.Release())
					return r.Close()
				}))
				req.Finish()
			}
		})
	}
}

// lock is for one reader.
type lock struct{ sync.Mutex }

func (l *lock) Lock(context.Context) error { l.Mutex.Lock(); return nil }
func (l *lock) Unlock() error              { l.Mutex.Unlock(); return nil }

// TestTogether uses one processor from several goroutines.
func TestTogether(t *testing.T) {
	files := images(t)
	for _, run := range []string{"llava-56-float16", "qwen2-vl"} {
		p := processorOf(t, run)
		sums := func() map[string][32]byte {
			out := map[string][32]byte{}
			for name, file := range files {
				if _, it, err := process(p, file); err == nil {
					out[name] = sha256.Sum256(tensorOf(it, "pixel_values").Data)
				}
			}
			return out
		}
		want := sums()
		var wg sync.WaitGroup
		got := make([]map[string][32]byte, 4)
		for i := range got {
			wg.Go(func() { got[i] = sums() })
		}
		wg.Wait()
		for _, g := range got {
			require.Equal(t, want, g)
		}
	}
}

// TestPatches puts the pixels of Qwen's patches together again.
func TestPatches(t *testing.T) {
	p := processorOf(t, "qwen2-vl").(*qwenProcessor)
	rapid.Check(t, func(t *rapid.T) {
		w, h := 28*rapid.IntRange(1, 5).Draw(t, "w"), 28*rapid.IntRange(1, 5).Draw(t, "h")
		if w*h < p.minPixels || w*h > p.maxPixels {
			t.Skip("would be resized")
		}
		noise := rapid.SliceOfN(rapid.Byte(), 64, 64).Draw(t, "noise")
		img := image.NewNRGBA(image.Rect(0, 0, w, h))
		for i := range img.Pix {
			img.Pix[i] = noise[(i+i/64*7)%64] ^ byte(i/w)
			if i%4 == 3 {
				img.Pix[i] = 255
			}
		}
		var file bytes.Buffer
		require.NoError(t, png.Encode(&file, img))
		l, it, err := process(p, file.Bytes())
		require.NoError(t, err)
		require.Equal(t, [3]int{1, h / 14, w / 14}, l.Grid)
		data, at := tensorOf(it, "pixel_values").Data, 0
		for by := range h / 28 {
			for bx := range w / 28 {
				for patch := range 4 {
					for c := range 3 {
						for range 2 {
							for y := range 14 {
								for x := range 14 {
									px := img.NRGBAAt(28*bx+patch%2*14+x, 28*by+patch/2*14+y)
									if data[at] != [3]byte{px.R, px.G, px.B}[c] {
										t.Fatalf("value %d", at)
									}
									at++
								}
							}
						}
					}
				}
			}
		}
		require.Len(t, data, at)
	})
}

// TestLayout holds for images of any size.
func TestLayout(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := image.Pt(rapid.IntRange(1, 9000).Draw(t, "w"), rapid.IntRange(1, 9000).Draw(t, "h"))
		p := &qwenProcessor{patch: 14, merge: 2, frames: 2, minPixels: 3136, maxPixels: 1003520, values: &pixelValues{dtype: "uint8", size: 1}}
		l, err := p.Layout(size)
		if max(size.X, size.Y) > 200*min(size.X, size.Y) {
			require.ErrorIs(t, err, ErrImage)
			return
		}
		require.NoError(t, err)
		pixels := l.Grid[1] * l.Grid[2] * 14 * 14
		require.Equal(t, 4*l.Tokens, l.Grid[1]*l.Grid[2])
		require.GreaterOrEqual(t, pixels, p.minPixels)
		require.LessOrEqual(t, pixels, p.maxPixels)
		require.EqualValues(t, 6*pixels+24, l.Bytes)
		require.Greater(t, l.Scratch, int64(3*size.X*size.Y))
	})
}

// TestScratch counts all that Fill allocates, which is more than it has at a time.
func TestScratch(t *testing.T) {
	files := images(t)
	for _, name := range []string{"coffee.png", "hubble_deep_field.jpg"} {
		files[name] = readImage(t, "media/"+name)
	}
	for _, run := range []string{"llava-56", "qwen2-vl"} {
		p := processorOf(t, run)
		for name, file := range files {
			l, it, err := process(p, file)
			if err != nil {
				continue
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err = p.Fill(t.Context(), file, l, func(key string) []byte { return tensorOf(it, key).Data })
			runtime.ReadMemStats(&after)
			require.NoError(t, err)
			require.LessOrEqual(t, int64(after.TotalAlloc-before.TotalAlloc), l.Scratch, "%s by %s", name, run)
		}
	}
}

// TestMissingPart makes CLIP's image of one that is smaller than the crop.
func TestMissingPart(t *testing.T) {
	dir := modelDir(t, "llava-56", "preprocessor_config.json", `"shortest_edge": 56`, `"shortest_edge": 21`)
	p, err := Open(dir, Options{})
	require.NoError(t, err)
	img := image.NewGray(image.Rect(0, 0, 63, 21))
	for i := range img.Pix {
		img.Pix[i] = byte(i%63 + 100)
	}
	var file bytes.Buffer
	require.NoError(t, png.Encode(&file, img))
	_, it, err := process(p, file.Bytes())
	require.NoError(t, err)
	v := p.(*clipProcessor).values
	data := tensorOf(it, "pixel_values").Data
	for i := range 3 * 56 * 56 {
		c, y, x := i/56/56, i/56%56, i%56
		pixel := 0 // as transformers pads: 17 lines above, 18 below
		if y >= 17 && y < 17+21 {
			pixel = 100 + 3 + x
		}
		require.Equal(t, v.of[c][pixel][:], data[4*i:4*i+4], "channel %d at %d, %d", c, x, y)
	}
}

// TestCancelled lets ctx end at every moment that Fill looks at it.
func TestCancelled(t *testing.T) {
	for _, name := range []string{"images/progressive.jpg", "images/420.jpg", "images/rgba.png"} {
		file := readImage(t, name)
		p := processorOf(t, "qwen2-vl")
		l, it, err := process(p, file)
		require.NoError(t, err)
		for looks := 0; ; looks++ {
			ctx := &ending{Context: t.Context(), looks: looks}
			err := p.Fill(ctx, file, l, func(key string) []byte { return tensorOf(it, key).Data })
			if err == nil {
				require.Greater(t, looks, 50, "Fill looks at every line")
				break
			}
			require.ErrorIs(t, err, context.Canceled)
			require.NotErrorIs(t, err, ErrImage)
		}
	}
}

// ending is a context that ends after some looks.
type ending struct {
	context.Context
	looks int
}

func (e *ending) Err() error {
	if e.looks--; e.looks < 0 {
		return context.Canceled
	}
	return nil
}

func TestWrongLayout(t *testing.T) {
	file := readImage(t, "images/420.jpg")
	for _, run := range []string{"llava-56", "qwen2-vl"} {
		p := processorOf(t, run)
		l, it, err := process(p, file)
		require.NoError(t, err)
		tensor := func(key string) []byte { return tensorOf(it, key).Data }
		ctx := t.Context()
		require.ErrorIs(t, p.Fill(ctx, file, Layout{}, tensor), ErrLayout)
		other, err := processorOf(t, "llava-336").Layout(image.Pt(64, 64))
		require.NoError(t, err)
		require.ErrorIs(t, p.Fill(ctx, file, other, tensor), ErrLayout)
		require.ErrorIs(t, p.Fill(ctx, file, l, func(string) []byte { return nil }), ErrLayout)
		require.ErrorIs(t, p.Fill(ctx, file, l, func(key string) []byte { return tensor(key)[1:] }), ErrLayout)
		err = p.Fill(ctx, readImage(t, "images/422-odd.jpg"), l, tensor)
		require.ErrorIs(t, err, ErrLayout)
		require.ErrorContains(t, err, "use what Inspect returns")
		require.NoError(t, p.Fill(ctx, file, l, tensor))
	}
}

// FuzzFill must not panic, and blame the image for what is wrong with it.
func FuzzFill(f *testing.F) {
	for _, file := range images(f) {
		f.Add(file)
	}
	var ps []Processor
	for _, run := range []string{"llava-56", "qwen2-vl"} {
		ps = append(ps, processorOf(f, run))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		size, err := Inspect(file)
		if err == nil && size.X*size.Y > 1<<18 {
			return // nothing new, but slow
		}
		for _, p := range ps {
			if _, _, err = process(p, file); err != nil {
				require.ErrorIs(t, err, ErrImage)
			}
		}
	})
}
