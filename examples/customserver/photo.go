package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/color"
	_ "image/jpeg" // decoders
	_ "image/png"

	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/serde"
)

const (
	channels = 3
	// decoding is the most bytes for each pixel that Go's decoders take: the
	// coefficients and planes of a progressive JPEG with four components.
	decoding = 20
)

// photo is a file whose header was read.
type photo struct {
	file []byte
	size image.Point
}

// inspect reads the header only: of a photo that is cached no more is needed. What
// would be too much work to decode it refuses.
func inspect(file []byte) (photo, error) {
	c, format, err := image.DecodeConfig(bytes.NewReader(file))
	if err != nil {
		return photo{}, fmt.Errorf("neither a JPEG nor a PNG file: %w", err)
	}
	if c.Width < 1 || c.Height < 1 || c.Width > maxPixels/c.Height {
		return photo{}, fmt.Errorf("%d by %d pixels, at most %d are allowed: %w", c.Width, c.Height, maxPixels, errTooLarge)
	}
	if format == "jpeg" {
		if err := checkScans(file); err != nil {
			return photo{}, err
		}
	}
	return photo{file, image.Pt(c.Width, c.Height)}, nil
}

// bound is the memory that making the item may take: the decoder's counts, too,
// though it is given back when the item is done.
func (p photo) bound() int64 {
	return int64(p.size.X)*int64(p.size.Y)*(channels+decoding) + updatesSize
}

// produce decodes the photo into the memory where it stays. It stops when ctx ends,
// which is when no request waits for the photo any more.
func (p photo) produce(ctx context.Context, b *mmcache.Builder) error {
	img, _, err := image.Decode(contextReader{ctx, bytes.NewReader(p.file)})
	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return badRequest{fmt.Errorf("damaged image: %w", err)}
	}
	if img.Bounds().Size() != p.size {
		return badRequest{fmt.Errorf("the image is %v, but its header announces %v", img.Bounds().Size(), p.size)}
	}
	if err := b.Layout(&serde.Item{Modality: "image", Elems: []serde.Elem{{
		Key:  "pixel_values",
		Data: &serde.Tensor{DType: "uint8", Shape: []int{p.size.Y, p.size.X, channels}},
	}}}, updates(p.size)); err != nil {
		return err
	}
	return fill(ctx, b.Tensor("pixel_values"), img)
}

// fill writes rows of red, green and blue.
func fill(ctx context.Context, dst []byte, img image.Image) error {
	r := img.Bounds()
	for y := r.Min.Y; y < r.Max.Y; y++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		switch img := img.(type) {
		case *image.YCbCr:
			for x := r.Min.X; x < r.Max.X; x++ {
				yi, ci := img.YOffset(x, y), img.COffset(x, y)
				dst[0], dst[1], dst[2] = color.YCbCrToRGB(img.Y[yi], img.Cb[ci], img.Cr[ci])
				dst = dst[channels:]
			}
		case *image.RGBA: // what a PNG without transparency decodes to
			for line := img.Pix[img.PixOffset(r.Min.X, y):][:4*r.Dx()]; len(line) > 0; line = line[4:] {
				copy(dst, line[:channels])
				dst = dst[channels:]
			}
		default:
			for x := r.Min.X; x < r.Max.X; x++ {
				r, g, b, _ := img.At(x, y).RGBA()
				dst[0], dst[1], dst[2] = byte(r>>8), byte(g>>8), byte(b>>8)
				dst = dst[channels:]
			}
		}
	}
	return nil
}

// The prompt updates of this server are the image's sides: what a chat template
// needs to know of an item, cached with it.
const updatesSize = 8

func updates(size image.Point) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(size.X))
	return binary.LittleEndian.AppendUint32(b, uint32(size.Y))
}

func parseUpdates(b []byte) (image.Point, error) {
	if len(b) != updatesSize {
		return image.Point{}, errors.New("the item has no prompt updates")
	}
	return image.Pt(int(binary.LittleEndian.Uint32(b)), int(binary.LittleEndian.Uint32(b[4:]))), nil
}
