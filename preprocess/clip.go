package preprocess

import (
	"context"
	"fmt"
	"image"

	"github.com/ringcache/ringcache/serde"
)

// clipProcessor makes the items of LLaVA (vllm/model_executor/models/llava.py,
// LlavaMultiModalProcessor): one tensor of fixed size, of the middle of the
// image.
type clipProcessor struct {
	shortest int         // that the shorter side is resized to; 0: see exact
	exact    image.Point // that the image is resized to; zero: it isn't resized
	side     int         // of the square that is left
	values   *pixelValues
	item     *serde.Item
	bytes    int64
	tokens   int
}

func newCLIP(m model, s settings, o Options) (Processor, error) {
	if err := s.common(); err != nil {
		return nil, err
	}
	p := &clipProcessor{}
	if or(s.Resize, true) {
		size, err := sides("size", s.Size, "shortest_edge", map[string]int{"shortest_edge": 224})
		if err != nil {
			return nil, err
		}
		if one, err := within("size", size, maxSetting, "shortest_edge"); err == nil {
			p.shortest = one[0]
		} else if two, err2 := within("size", size, maxSetting, "width", "height"); err2 == nil {
			p.exact = image.Pt(two[0], two[1])
		} else {
			return nil, fmt.Errorf("%w, or height and width", err)
		}
	}
	// The engine works with the size that the tower has; another one fails there.
	side, patch, strategy := 336, 14, or(m.Strategy, "default")
	if v := m.Vision; v != nil {
		if v.Type != "" && v.Type != "clip_vision_model" {
			return nil, fmt.Errorf("vision_config.model_type %q is not supported, only clip_vision_model", v.Type)
		}
		side, patch = or(v.ImageSize, 224), or(v.PatchSize, 32)
	}
	if side < 1 || side > maxSetting || patch < 1 || side%patch != 0 {
		return nil, fmt.Errorf("vision_config: image_size %d is not a multiple of patch_size %d", side, patch)
	}
	p.side = side
	if or(s.CenterCrop, true) {
		crop, err := sides("crop_size", s.CropSize, "", map[string]int{"height": 224, "width": 224})
		if err != nil {
			return nil, err
		}
		if n, ok := crop[""]; ok {
			crop = map[string]int{"height": n, "width": n}
		}
		two, err := within("crop_size", crop, maxSetting, "height", "width")
		if err != nil {
			return nil, err
		}
		if two[0] != side || two[1] != side {
			return nil, fmt.Errorf("crop_size is %d by %d, but vision_config.image_size is %d", two[1], two[0], side)
		}
	} else if p.exact != image.Pt(side, side) {
		return nil, fmt.Errorf("without do_center_crop, size must have height and width %d, which is vision_config.image_size", side)
	}
	switch strategy {
	case "default": // all patches; the class token is dropped
		p.tokens = side / patch * (side / patch)
	case "full":
		p.tokens = side/patch*(side/patch) + 1
	default:
		return nil, fmt.Errorf("vision_feature_select_strategy %q is not supported, only default and full", strategy)
	}
	var err error
	if p.values, err = s.values(o.DType, false); err != nil {
		return nil, err
	}
	p.bytes = int64(channels*side*side) * int64(p.values.size)
	p.item = &serde.Item{Modality: "image", Elems: []serde.Elem{{
		Key:   "pixel_values",
		Data:  &serde.Tensor{DType: p.values.dtype, Shape: []int{channels, side, side}},
		Field: serde.Field{Kind: serde.Batched},
	}}}
	return p, nil
}

// resized returns the size that an image is resized to, before it is cropped.
func (p *clipProcessor) resized(size image.Point) image.Point {
	switch {
	case p.exact != image.Point{}:
		return p.exact
	case p.shortest == 0:
		return size
	}
	short, long := min(size.X, size.Y), max(size.X, size.Y)
	longer := int(float64(p.shortest*long) / float64(short))
	if size.X <= size.Y {
		return image.Pt(p.shortest, longer)
	}
	return image.Pt(longer, p.shortest)
}

func (p *clipProcessor) Layout(size image.Point) (Layout, error) {
	to, err := fits(size, p.resized)
	if err != nil {
		return Layout{}, err
	}
	return Layout{
		Item: p.item, Tokens: p.tokens, Bytes: p.bytes,
		Scratch: scratch(size, to, min(to.X, p.side)), size: size,
	}, nil
}

func (p *clipProcessor) Fill(ctx context.Context, file []byte, l Layout, tensor func(key string) []byte) error {
	if l.Item != p.item {
		return fmt.Errorf("%w: it is not of this processor", ErrLayout)
	}
	mem, err := l.tensors(tensor)
	if err != nil {
		return err
	}
	b := takeBuffers()
	defer b.giveBack()
	src, err := decode(ctx, file, l.size, b)
	if err != nil {
		return err
	}
	to := p.resized(l.size)
	// Where the square begins in the resized image; before it, if that is smaller.
	begin := func(n int) int {
		if n < p.side {
			return -((p.side - n) / 2)
		}
		return (n - p.side) / 2
	}
	at := image.Pt(begin(to.X), begin(to.Y))
	square := image.Rectangle{at, at.Add(image.Pt(p.side, p.side))}
	part := square.Intersect(image.Rectangle{Max: to})
	dst, n := mem["pixel_values"], p.values.size
	if part != square { // what is missing is black
		for i := 0; i < len(dst); i += n {
			copy(dst[i:i+n], p.values.of[i/(n*p.side*p.side)][0][:])
		}
	}
	return resizing{in: l.size, out: to, part: part}.run(ctx, src, func(y int, line []byte) {
		for c := range channels {
			p.values.write(dst[n*((c*p.side+y+part.Min.Y-at.Y)*p.side+part.Min.X-at.X):], line, c)
		}
	})
}

// fits checks an image's size before and after it is resized.
func fits(size image.Point, resized func(image.Point) image.Point) (image.Point, error) {
	if size.X < 1 || size.Y < 1 || size.X > MaxPixels/size.Y {
		return image.Point{}, imageError("%d by %d pixels; at most %d are allowed", size.X, size.Y, MaxPixels)
	}
	to := resized(size)
	if to.X < 1 || to.Y < 1 {
		return image.Point{}, imageError("nothing is left of %d by %d pixels when they are resized", size.X, size.Y)
	}
	if to.X > MaxPixels/to.Y {
		return image.Point{}, imageError("%d by %d pixels become %d by %d, but at most %d are allowed; crop it",
			size.X, size.Y, to.X, to.Y, MaxPixels)
	}
	return to, nil
}

// scratch is the memory for decoding and resizing an image, of which width
// pixels across are wanted.
func scratch(size, to image.Point, width int) int64 {
	const (
		// Of an interlaced PNG with four channels of 16 bits: the image, its passes,
		// and the turned image. A JPEG takes 12.
		decoding = 8 + 8 + 3
		mcu      = 32        // pixels that a JPEG is padded to
		lines    = 40        // bytes for each pixel across: lines that are being worked on
		fixed    = 192 << 10 // tables, and what the library for PNG takes
	)
	pad := func(n int) int64 { return int64(n+mcu-1) / mcu * mcu }
	taps := func(in, out int) int64 { return int64(4*max(in/out+1, 1) + 3) }
	across := int64(width) * (12*taps(size.X, to.X) + maxBands*channels*(taps(size.Y, to.Y)+6))
	down := int64(to.Y) * (12*taps(size.Y, to.Y) + 16)
	return pad(size.X)*pad(size.Y)*decoding + across + down + maxBands*lines*int64(size.X) + fixed
}
