package preprocess

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"math"

	"github.com/ringcache/ringcache/serde"
)

// maxAspect is the most that one side may be longer than the other, in times.
const maxAspect = 200

// qwenProcessor makes the items of Qwen2-VL and Qwen2.5-VL
// (vllm/model_executor/models/qwen2_vl.py, Qwen2VLMultiModalProcessor): patches
// of an image that keeps its shape roughly, and their number down and across.
type qwenProcessor struct {
	patch, merge, frames int
	minPixels, maxPixels int
	values               *pixelValues
}

func newQwen(m model, s settings, o Options) (Processor, error) {
	if err := s.common(); err != nil {
		return nil, err
	}
	if !or(s.Resize, true) {
		return nil, errors.New("do_resize off is not supported")
	}
	size, err := sides("size", s.Size, "shortest_edge", map[string]int{"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 1280})
	if err != nil {
		return nil, err
	}
	for _, alias := range []struct {
		of, name string
		pixels   *int
	}{{"shortest_edge", "min_pixels", s.MinPixels}, {"longest_edge", "max_pixels", s.MaxPixels}} {
		if alias.pixels != nil {
			size[alias.of] = *alias.pixels
			delete(size, alias.name)
		}
	}
	limits, err := within("size", size, MaxPixels, "shortest_edge", "longest_edge")
	if err != nil {
		return nil, err
	}
	const patch, merge, frames = 14, 2, 2 // defaults, also of vision_config
	p := &qwenProcessor{
		patch: or(s.PatchSize, patch), merge: or(s.MergeSize, merge), frames: or(s.TemporalSize, frames),
		minPixels: limits[0], maxPixels: limits[1],
	}
	const most = 1 << 10
	if min(p.patch, p.merge, p.frames) < 1 || max(p.patch, p.merge, p.frames) > most {
		return nil, fmt.Errorf("patch_size %d, merge_size %d and temporal_patch_size %d must be 1 to %d", p.patch, p.merge, p.frames, most)
	}
	if v := m.Vision; v != nil {
		if or(v.PatchSize, patch) != p.patch || or(v.MergeSize, merge) != p.merge || or(v.TemporalSize, frames) != p.frames {
			return nil, errors.New("patch_size, merge_size or temporal_patch_size is not what vision_config in config.json contains")
		}
	}
	if p.values, err = s.values(o.DType, !o.Normalize); err != nil {
		return nil, err
	}
	return p, nil
}

// smartResize returns the size that an image is resized to: multiples of factor,
// with minPixels to maxPixels if that can be, in about its shape
// (smart_resize in transformers/models/qwen2_vl/image_processing_qwen2_vl.py).
func smartResize(size image.Point, factor, minPixels, maxPixels int) image.Point {
	f := float64(factor)
	// Python rounds half to even.
	round := func(n int) int { return int(math.RoundToEven(float64(n)/f)) * factor }
	w, h := round(size.X), round(size.Y)
	pixels := float64(size.X * size.Y)
	switch {
	case w*h > maxPixels:
		beta := math.Sqrt(pixels / float64(maxPixels))
		less := func(n int) int { return max(factor, int(math.Floor(float64(n)/beta/f))*factor) }
		w, h = less(size.X), less(size.Y)
	case w*h < minPixels:
		beta := math.Sqrt(float64(minPixels) / pixels)
		more := func(n int) int { return int(math.Ceil(float64(n)*beta/f)) * factor }
		w, h = more(size.X), more(size.Y)
	}
	return image.Pt(w, h)
}

func (p *qwenProcessor) resized(size image.Point) image.Point {
	return smartResize(size, p.patch*p.merge, p.minPixels, p.maxPixels)
}

// patchLen is the values of a patch.
func (p *qwenProcessor) patchLen() int { return channels * p.frames * p.patch * p.patch }

func (p *qwenProcessor) Layout(size image.Point) (Layout, error) {
	if short := min(size.X, size.Y); short > 0 && float64(max(size.X, size.Y))/float64(short) > maxAspect {
		return Layout{}, imageError("%d by %d pixels: one side is more than %d times the other; crop it", size.X, size.Y, maxAspect)
	}
	to, err := fits(size, p.resized)
	if err != nil {
		return Layout{}, err
	}
	grid := [3]int{1, to.Y / p.patch, to.X / p.patch}
	rows := grid[1] * grid[2]
	const int64s = 8
	return Layout{
		Item: &serde.Item{Modality: "image", Elems: []serde.Elem{{
			Key:   "image_grid_thw",
			Data:  &serde.Tensor{DType: "int64", Shape: []int{len(grid)}},
			Field: serde.Field{Kind: serde.Batched, KeepOnCPU: true},
		}, {
			Key:   "pixel_values",
			Data:  &serde.Tensor{DType: p.values.dtype, Shape: []int{rows, p.patchLen()}},
			Field: serde.FlatFromSizes(rows),
		}}},
		Tokens: rows / (p.merge * p.merge), Grid: grid,
		Bytes:   int64(rows)*int64(p.patchLen()*p.values.size) + int64s*int64(len(grid)),
		Scratch: scratch(size, to, to.X), size: size,
	}, nil
}

func (p *qwenProcessor) Fill(ctx context.Context, file []byte, l Layout, tensor func(key string) []byte) error {
	own, err := p.Layout(l.size)
	if err != nil || l.Bytes != own.Bytes || l.Grid != own.Grid {
		return fmt.Errorf("%w: it is not of this processor", ErrLayout)
	}
	mem, err := own.tensors(tensor)
	if err != nil {
		return err
	}
	b := takeBuffers()
	defer b.giveBack()
	src, err := decode(ctx, file, l.size, b)
	if err != nil {
		return err
	}
	for i, n := range own.Grid {
		binary.LittleEndian.PutUint64(mem["image_grid_thw"][8*i:], uint64(n))
	}
	dst, to := mem["pixel_values"], p.resized(l.size)
	return resizing{in: l.size, out: to, part: image.Rectangle{Max: to}, unit: p.patch}.run(ctx, src, func(y int, line []byte) {
		p.place(dst, to.X, y, line)
	})
}

// place writes a line of pixels into the patches that it runs through, whose other
// frames it makes when their last line is there. Patches
// are ordered in blocks of merge by merge, which become one token; each holds
// its frames, here equal ones, of each channel.
func (p *qwenProcessor) place(dst []byte, width, y int, line []byte) {
	n, m := p.values.size, p.merge
	down, inside := y/p.patch, y%p.patch
	across := width / p.patch
	frame := n * p.patch * p.patch
	for x := range across {
		at := (down/m*(across/m)+x/m)*m*m + down%m*m + x%m
		out := dst[at*p.patchLen()*n:][:p.patchLen()*n]
		in := line[channels*x*p.patch:][:channels*p.patch]
		for c := range channels {
			frames := out[c*p.frames*frame:][:p.frames*frame]
			p.values.write(frames[n*inside*p.patch:], in, c)
			if inside == p.patch-1 {
				for f := 1; f < p.frames; f++ {
					copy(frames[f*frame:], frames[:frame])
				}
			}
		}
	}
}
