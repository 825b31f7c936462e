package main

import (
	"bytes"
	"fmt"
	"image"
	"image/draw"
	"image/jpeg"
	"image/png"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
)

// sample is a file to post, with the answer that is right.
type sample struct {
	file []byte
	size image.Point
	mean float64
}

func (s sample) bytes() int64 { return int64(s.size.X) * int64(s.size.Y) * channels }

// maxSide bounds the sides of variants in pixels.
const maxSide = 480

// makeSamples returns the photos of a folder, and parts of them in other sizes
// until all together are atLeast bytes when decoded.
func makeSamples(dir string, atLeast int64, rnd *rand.Rand) ([]sample, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var samples []sample
	var images []image.Image
	var total int64
	for _, f := range files {
		switch strings.ToLower(filepath.Ext(f.Name())) {
		case ".jpg", ".jpeg", ".png":
		default:
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return nil, err
		}
		img, _, err := image.Decode(bytes.NewReader(b))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
		images = append(images, img)
		samples = append(samples, sample{file: b, size: img.Bounds().Size()})
		total += samples[len(samples)-1].bytes()
	}
	if len(images) == 0 {
		return nil, fmt.Errorf("no JPEG or PNG files in %s", dir)
	}
	var makers []func() ([]byte, error)
	for total < atLeast {
		img := images[rnd.IntN(len(images))]
		from := part(img.Bounds(), rnd)
		to := image.Pt(maxSide/4+rnd.IntN(maxSide*3/4), maxSide/4+rnd.IntN(maxSide*3/4))
		asJPEG := rnd.IntN(2) == 0
		makers = append(makers, func() ([]byte, error) { return encode(resize(img, from, to), asJPEG) })
		samples = append(samples, sample{size: to})
		total += samples[len(samples)-1].bytes()
	}
	return samples, finish(samples, makers)
}

// finish encodes the variants, which come last, and works out all answers.
func finish(samples []sample, makers []func() ([]byte, error)) error {
	var wg sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	errs := make([]error, len(samples))
	for i := range samples {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if v := i - (len(samples) - len(makers)); v >= 0 {
				if samples[i].file, errs[i] = makers[v](); errs[i] != nil {
					return
				}
			}
			samples[i].mean, errs[i] = directMean(samples[i].file)
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// part is a random part of an image, with half of its sides at least.
func part(r image.Rectangle, rnd *rand.Rand) image.Rectangle {
	w, h := r.Dx()/2+rnd.IntN(r.Dx()/2), r.Dy()/2+rnd.IntN(r.Dy()/2)
	at := r.Min.Add(image.Pt(rnd.IntN(r.Dx()-w+1), rnd.IntN(r.Dy()-h+1)))
	return image.Rectangle{at, at.Add(image.Pt(w, h))}
}

// resize takes the nearest pixel.
func resize(img image.Image, from image.Rectangle, to image.Point) image.Image {
	out := image.NewNRGBA(image.Rectangle{Max: to})
	for y := range to.Y {
		for x := range to.X {
			out.Set(x, y, img.At(from.Min.X+x*from.Dx()/to.X, from.Min.Y+y*from.Dy()/to.Y))
		}
	}
	return out
}

func encode(img image.Image, asJPEG bool) ([]byte, error) {
	var b bytes.Buffer
	if asJPEG {
		err := jpeg.Encode(&b, img, &jpeg.Options{Quality: 90})
		return b.Bytes(), err
	}
	err := (&png.Encoder{CompressionLevel: png.BestSpeed}).Encode(&b, img)
	return b.Bytes(), err
}

// directMean computes the answer in another way than the server does.
func directMean(file []byte) (float64, error) {
	img, _, err := image.Decode(bytes.NewReader(file))
	if err != nil {
		return 0, err
	}
	size := img.Bounds().Size()
	rgba := image.NewRGBA(image.Rectangle{Max: size})
	draw.Draw(rgba, rgba.Rect, img, img.Bounds().Min, draw.Src)
	var sum float64
	for i, v := range rgba.Pix {
		if i%4 < channels {
			sum += float64(v)
		}
	}
	return sum / float64(size.X*size.Y*channels), nil
}
