package preprocess

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"os"
	"path/filepath"
	"runtime"
	"strings"
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
	for _, mode := range []mmcache.Mode{mmcache.LRU, mmcache.SHM} {
		t.Run(mode.String(), func(t *testing.T) {
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
					if mode == mmcache.LRU {
						require.Equal(t, want, w.Item)
						return nil
					}
					r, err := objstore.Open(cache.(*mmcache.Shared).Name(), objstore.ReaderOptions{Dir: o.Shared.Dir, RingSize: size, Readers: 1, Lock: new(lock)})
					require.NoError(t, err)
					v, err := r.Get(w.Handle, w.Key)
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

// TestCutOff takes the end off images.
func TestCutOff(t *testing.T) {
	p := processorOf(t, "llava-56")
	for name, file := range images(t) {
		if _, _, err := process(p, file); err != nil {
			continue
		}
		for _, n := range []int{1, 2, 13, len(file) / 3, len(file) / 2, len(file) - 30, len(file) - 3, len(file)} {
			_, _, err := process(p, file[:len(file)-min(n, len(file))])
			require.ErrorIs(t, err, ErrImage, "%s without the last %d bytes", name, n)
		}
	}
}

// withHeader gives a PNG another size.
func withHeader(file []byte, w, h uint32) []byte {
	out := bytes.Clone(file)
	binary.BigEndian.PutUint32(out[16:], w)
	binary.BigEndian.PutUint32(out[20:], h)
	binary.BigEndian.PutUint32(out[29:], crc32.ChecksumIEEE(out[12:29]))
	return out
}

func TestBadImages(t *testing.T) {
	pic := readImage(t, "images/rgb-57x31.png")
	photo := readImage(t, "images/420.jpg")
	sof := bytes.Index(photo, []byte{0xff, 0xc0})
	sos := bytes.Index(photo, []byte{0xff, 0xda})
	jpg := func(at int, b ...byte) []byte {
		out := bytes.Clone(photo)
		copy(out[at:], b)
		return out
	}
	for _, c := range []struct {
		name, text string
		file       []byte
	}{
		{"empty", "neither a JPEG nor a PNG", nil},
		{"text", "neither a JPEG nor a PNG", []byte("hello")},
		{"GIF", "GIF is not supported", []byte("GIF89a....")},
		{"WebP", "WebP is not supported", []byte("RIFF\x00\x00\x00\x00WEBPVP8 ")},
		{"CMYK", "CMYK JPEG is not supported", readImage(t, "images/cmyk.jpg")},
		{"PNG of many pixels", "at most 178956970", withHeader(pic, 20000, 20000)},
		{"PNG with a wrong header", "has only", withHeader(pic, 9000, 9000)},
		{"PNG with another height", "not enough pixel data", withHeader(pic, 57, 32)},
		{"PNG without pixels", "non-positive", withHeader(pic, 0, 5)},
		{"PNG with a wrong checksum", "checksum", append(bytes.Clone(pic[:len(pic)-13]), append([]byte{pic[len(pic)-13] ^ 1}, pic[len(pic)-12:]...)...)},
		{"JPEG of many pixels", "at most 178956970", jpg(sof+5, 0xff, 0xff, 0xff, 0xff)},
		{"JPEG with a wrong header", "has only", jpg(sof+5, 0x10, 0, 0x10, 0)},
		{"JPEG without pixels", "0 by 64", jpg(sof+7, 0, 0)},
		{"JPEG with more lines", "too early", jpg(sof+5, 0, 200)},
		{"JPEG with 12 bits", "12 bits", jpg(sof+4, 12)},
		{"arithmetic JPEG", "arithmetic", jpg(sof+1, 0xc9)},
		{"JPEG with two components", "2 components", jpg(sof+9, 2)},
		{"JPEG with bad factors", "bad JPEG header", jpg(sof+11, 0x50)},
		{"JPEG with odd factors", "fraction", jpg(sof+11, 0x32, 0, 2, 0x22)},
		{"JPEG with equal components", "bad JPEG header", jpg(sof+13, 1)},
		{"JPEG with a table missing", "quantization table", jpg(sof+12, 3)},
		{"JPEG with an unknown component", "bad scan", jpg(sos+5, 9)},
		{"JPEG with a component twice", "bad scan", jpg(sos+7, 1)},
		{"JPEG with a code missing", "bad scan", jpg(sos+6, 0x33)},
		{"JPEG without a picture", "no picture", []byte("\xff\xd8\xff\xd9")},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := process(processorOf(t, "llava-56"), c.file)
			require.ErrorIs(t, err, ErrImage)
			require.ErrorContains(t, err, c.text)
		})
	}
	_, err := processorOf(t, "qwen2-vl").Layout(image.Pt(201, 1))
	require.ErrorContains(t, err, "crop it")
	_, err = processorOf(t, "llava-56").Layout(image.Pt(1, 60000000))
	require.ErrorContains(t, err, "become")
	for _, run := range []string{"llava-56", "qwen2-vl"} {
		for _, size := range []image.Point{{}, {0, 5}, {-3, 7}, {1 << 30, 1 << 30}} {
			_, err := processorOf(t, run).Layout(size)
			require.ErrorIs(t, err, ErrImage)
		}
	}
}

// TestManyScans refuses a small file that asks for endless work.
func TestManyScans(t *testing.T) {
	file := readImage(t, "images/progressive.jpg")
	marker := func(from int, of ...byte) int {
		at := bytes.Index(file[from:], append([]byte{0xff}, of...))
		require.GreaterOrEqual(t, at, 0)
		return from + at
	}
	first := marker(0, mSOS)
	second := marker(first+1, mSOS) // of AC
	end := marker(second+1, mDHT)
	repeat := func(n int) error {
		many := append(bytes.Clone(file[:end]), bytes.Repeat(file[second:end], n)...)
		_, _, err := process(processorOf(t, "llava-56"), append(many, file[end:]...))
		return err
	}
	require.NoError(t, repeat(20))
	err := repeat(maxScans)
	require.ErrorIs(t, err, ErrImage)
	require.ErrorContains(t, err, "more than 100 scans")
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

// modelDir copies a model, with one replacement.
func modelDir(t *testing.T, model, file, from, to string) string {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "models", model))))
	path := filepath.Join(dir, file)
	if from == "" {
		require.NoError(t, os.Remove(path))
		return dir
	}
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(b), from)
	require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(b), from, to, 1)), 0o600))
	return dir
}

func TestOpenErrors(t *testing.T) {
	const pre, conf = "preprocessor_config.json", "config.json"
	for _, c := range []struct{ model, file, from, to, text string }{
		{"llava-56", conf, "", "", "no such file"},
		{"llava-56", pre, "", "", "no such file"},
		{"llava-56", pre, `"shortest_edge": 56`, `"shortest_edge": "a"`, "not a map of numbers"},
		{"llava-56", pre, `"resample": 3`, `"resample": "three"`, "cannot unmarshal"},
		{"llava-56", conf, `"llava"`, `"mllama"`, `model_type "mllama" is not supported; supported are`},
		{"llava-56", conf, "clip_vision_model", "siglip_vision_model", "only clip_vision_model"},
		{"llava-56", conf, `"patch_size": 14`, `"patch_size": 16`, "not a multiple"},
		{"llava-56", conf, `_strategy": "default"`, `_strategy": "mean"`, "only default and full"},
		{"llava-56", pre, "CLIPImageProcessor", "SiglipImageProcessor", `"SiglipImageProcessor" of a llava model`},
		{"llava-56", pre, `"resample": 3`, `"resample": 2`, "only 3 (bicubic)"},
		{"llava-56", pre, `"do_resize"`, `"do_pad": true, "do_resize"`, "do_pad is not supported"},
		{"llava-56", pre, `"shortest_edge"`, `"longest_edge"`, "it must have shortest_edge, or height and width"},
		{"llava-56", pre, `"shortest_edge": 56`, `"shortest_edge": 0`, "1 to 65536"},
		{"llava-56", pre, `"height": 56`, `"height": 57`, "vision_config.image_size is 56"},
		{"llava-56", pre, `"do_center_crop": true`, `"do_center_crop": false`, "without do_center_crop"},
		{"llava-56", pre, `0.25,`, ``, "image_std 2"},
		{"llava-56", pre, `0.25,`, `0,`, "image_std has a 0"},
		{"llava-56", pre, `0.00392156862745098`, `0`, "rescale_factor is 0"},
		{"qwen2-vl", pre, "Qwen2VLImageProcessor", "CLIPImageProcessor", `"CLIPImageProcessor" of a qwen2_vl model`},
		{"qwen2-vl", pre, `"do_resize": true`, `"do_resize": false`, "do_resize off"},
		{"qwen2-vl", pre, `"merge_size": 2`, `"merge_size": 0`, "must be 1 to"},
		{"qwen2-vl", pre, `"merge_size": 2`, `"merge_size": 3`, "not what vision_config"},
		{"qwen2-vl", pre, `"min_pixels": 3136`, `"min_pixels": 0`, "shortest_edge is 0"},
		{"qwen2-vl", pre, `"patch_size": 14`, `"patch_size": 14, "size": {"height": 3}`, "must have shortest_edge and longest_edge"},
		{"qwen2.5-vl", "processor_config.json", `"longest_edge"`, `"max"`, "must have shortest_edge and longest_edge"},
	} {
		_, err := Open(modelDir(t, c.model, c.file, c.from, c.to), Options{})
		require.ErrorIs(t, err, ErrModel, c.text)
		require.ErrorContains(t, err, c.text)
	}
	_, err := Open(filepath.Join("testdata", "models", "llava-56"), Options{DType: "float64"})
	require.ErrorContains(t, err, "use float32, bfloat16 or float16")
}

// TestOpenDefaults leaves out what transformers has defaults for.
func TestOpenDefaults(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("preprocessor_config.json", "{}")
	write("config.json", `{"model_type": "qwen2_vl"}`)
	p, err := Open(dir, Options{Normalize: true})
	require.NoError(t, err)
	q := p.(*qwenProcessor)
	require.Equal(t, []int{14, 2, 2, 3136, 1003520}, []int{q.patch, q.merge, q.frames, q.minPixels, q.maxPixels})
	require.EqualValues(t, "float32", q.values.dtype)

	write("config.json", `{"model_type": "llava", "vision_config": {"image_size": 224, "patch_size": 14}, "vision_feature_select_strategy": "full"}`)
	write("preprocessor_config.json", `{"feature_extractor_type": "CLIPFeatureExtractor", "size": 224, "crop_size": 224}`)
	p, err = Open(dir, Options{})
	require.NoError(t, err)
	l, err := p.Layout(image.Pt(9, 9))
	require.NoError(t, err)
	require.Equal(t, 257, l.Tokens)
}

// TestFloats checks the roundings of the short floats.
func TestFloats(t *testing.T) {
	for x, want := range map[float32]uint16{
		0: 0, 1: 0x3c00, -2: 0xc000, 65504: 0x7bff, 65519: 0x7bff, 65520: 0x7c00, 1e9: 0x7c00,
		1 + 1./2048: 0x3c00, 1 + 3./2048: 0x3c02, // ties
		1. / (1 << 14): 0x0400, 1. / (1 << 24): 1, 1. / (1 << 25): 0, 3. / (1 << 25): 2,
	} {
		require.Equal(t, want, float16(x), "%v", x)
	}
	for x, want := range map[float32]uint16{0: 0, 1: 0x3f80, -1.5: 0xbfc0, 1 + 1./256: 0x3f80, 1 + 3./256: 0x3f82, 1.005: 0x3f81} {
		b := encode(x, "bfloat16")
		require.Equal(t, want, binary.LittleEndian.Uint16(b[:]), "%v", x)
	}
}

// TestLikeGo compares with Go's JPEG decoder, which differs in the last bits.
func TestLikeGo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, h := rapid.IntRange(1, 70).Draw(t, "w"), rapid.IntRange(1, 70).Draw(t, "h")
		seed := rapid.Uint32().Draw(t, "seed")
		img := image.NewRGBA(image.Rect(0, 0, w, h))
		for y := range h {
			for x := range w {
				seed = seed*1664525 + 1013904223
				img.SetRGBA(x, y, color.RGBA{byte(3*x + y), byte(seed >> 27), byte(2*y + int(seed>>30)), 255})
			}
		}
		var file bytes.Buffer
		require.NoError(t, jpeg.Encode(&file, img, &jpeg.Options{Quality: rapid.IntRange(1, 100).Draw(t, "quality")}))
		want, err := jpeg.Decode(bytes.NewReader(file.Bytes()))
		require.NoError(t, err)
		j, scan, err := readJPEG(file.Bytes())
		require.NoError(t, err)
		require.NoError(t, j.decode(t.Context(), scan))
		y := want.(*image.YCbCr)
		for i := range w * h {
			a, b := int(y.Y[i/w*y.YStride+i%w]), int(j.comps[0].pix[i/w*j.comps[0].stride()+i%w])
			if max(a-b, b-a) > 2 {
				t.Fatalf("sample %d is %d, Go has %d", i, b, a)
			}
		}
	})
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
