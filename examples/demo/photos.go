package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"image"
	"image/draw"
	_ "image/jpeg" // decoders
	_ "image/png"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/ringcache/ringcache/serde"
)

// The geometry of Qwen2-VL's image inputs: patches of 14 by 14 pixels, ordered
// in blocks of 2 by 2 that are merged to one token; an image is a clip of two
// equal frames.
const (
	patch    = 14
	merge    = 2
	frames   = 2
	channels = 3
	block    = patch * merge
	perPatch = channels * frames * patch * patch // floats
)

// The normalisation of CLIP's images, per channel of red, green and blue.
var (
	mean = [channels]float32{0.48145466, 0.4578275, 0.40821073}
	std  = [channels]float32{0.26862954, 0.26130258, 0.27577711}
)

// photo is one decoded file.
type photo struct {
	name string
	rgba *image.RGBA
}

func loadPhotos(dir string) ([]photo, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []photo
	for _, f := range files {
		switch strings.ToLower(filepath.Ext(f.Name())) {
		case ".jpg", ".jpeg", ".png":
		default:
			continue
		}
		img, err := decode(filepath.Join(dir, f.Name()))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
		out = append(out, photo{f.Name(), img})
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no JPEG or PNG files in %s", dir)
	}
	return out, nil
}

func decode(path string) (*image.RGBA, error) {
	file, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	// The files are the user's own. A server bounds more than this: examples/customserver.
	c, _, err := image.DecodeConfig(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	if c.Width < 1 || c.Height < 1 || c.Width > maxPixels/c.Height {
		return nil, fmt.Errorf("%d by %d pixels, want at most %d in all", c.Width, c.Height, maxPixels)
	}
	img, _, err := image.Decode(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	rgba := image.NewRGBA(image.Rect(0, 0, img.Bounds().Dx(), img.Bounds().Dy()))
	draw.Draw(rgba, rgba.Bounds(), img, img.Bounds().Min, draw.Src)
	if rgba.Rect.Dx() < minSide || rgba.Rect.Dy() < minSide {
		return nil, fmt.Errorf("%v is too small, want at least %d by %d pixels", rgba.Rect.Size(), minSide, minSide)
	}
	return rgba, nil
}

// maxSide bounds the sides of an image in pixels. A photo must be larger than
// minSide, so that something is left of it whatever the crop.
const (
	maxPixels = 100 << 20 // of a photo

	maxSide = 10 * block
	minSide = 4 * block
)

// crop is a part of a photo that starts at x, y: what makes many different
// images of a few files. Its sides are multiples of a block.
type crop struct {
	photo
	x, y, rows, cols int // rows and cols in patches
}

func newCrop(p photo, x, y int) crop {
	patches := func(side int) int { return min(side, maxSide) / block * merge }
	size := p.rgba.Rect.Size()
	return crop{p, x, y, patches(size.Y - y), patches(size.X - x)}
}

// key stands for the content hash that a frontend would use.
func (c crop) key() string { return fmt.Sprintf("%s@%d,%d", c.name, c.x, c.y) }

// layout is the item without its data.
func (c crop) layout() *serde.Item {
	n := c.rows * c.cols
	return &serde.Item{Modality: "image", Elems: []serde.Elem{
		{
			Key:   "pixel_values",
			Data:  &serde.Tensor{DType: "float32", Shape: []int{n, perPatch}},
			Field: serde.FlatFromSizes(n),
		},
		{
			Key:   "image_grid_thw",
			Data:  &serde.Tensor{DType: "int64", Shape: []int{3}},
			Field: serde.Field{Kind: serde.Batched, KeepOnCPU: true},
		},
	}}
}

// fill writes the two tensors, which lie in shared memory.
func (c crop) fill(pixels, grid []byte) {
	for i, n := range [3]int{1, c.rows, c.cols} {
		binary.LittleEndian.PutUint64(grid[8*i:], uint64(n))
	}
	for by := 0; by < c.rows; by += merge {
		for bx := 0; bx < c.cols; bx += merge {
			for m := range merge * merge {
				pixels = c.fillPatch(pixels, c.x+(bx+m%merge)*patch, c.y+(by+m/merge)*patch)
			}
		}
	}
}

// fillPatch writes one patch and returns what is left of dst.
func (c crop) fillPatch(dst []byte, x, y int) []byte {
	const plane = 4 * patch * patch
	for ch := range channels {
		first := dst[:plane]
		for row := range patch {
			line := c.rgba.Pix[c.rgba.PixOffset(x, y+row):]
			for col := range patch {
				v := (float32(line[4*col+ch])/255 - mean[ch]) / std[ch]
				binary.LittleEndian.PutUint32(first[4*(row*patch+col):], math.Float32bits(v))
			}
		}
		copy(dst[plane:], first) // the second frame
		dst = dst[frames*plane:]
	}
	return dst
}
