package preprocess

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/png"
)

// source is a decoded image, read line by line.
type source interface {
	// row returns line y: red, green and blue of every pixel. It may use buf,
	// which has room for a line.
	row(y int, buf []byte) []byte
	// fork returns the same image for another goroutine.
	fork() source
}

// decode decodes a file to lines of size pixels, turned as they should be. They lie in
// b, or elsewhere.
func decode(ctx context.Context, file []byte, size image.Point, b *buffers) (source, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f, err := parse(file)
	if err != nil {
		return nil, err
	}
	if f.turned() != size {
		return nil, fmt.Errorf("%w: the layout is for %d by %d pixels, but the image has %d by %d; use what Inspect returns for this file",
			ErrLayout, size.X, size.Y, f.turned().X, f.turned().Y)
	}
	if f.jpeg != nil {
		if err := f.jpeg.decode(ctx, f.scan, b); err != nil {
			return nil, damaged(ctx, err)
		}
		return orient(ctx, newPlanes(f.jpeg), f.size, f.orientation, b)
	}
	img, err := png.Decode(&reader{bytes.NewReader(file), ctx})
	if err != nil {
		return nil, damaged(ctx, err)
	}
	if img.Bounds() != (image.Rectangle{Max: f.size}) {
		return nil, imageError("it is %v, but its header announces %v", img.Bounds(), f.size)
	}
	s, err := f.pngSource(ctx, img)
	if err != nil {
		return nil, err
	}
	return orient(ctx, s, f.size, f.orientation, b)
}

// reader fails when ctx has ended.
type reader struct {
	*bytes.Reader
	ctx context.Context
}

func (r *reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

// damaged is the error of a decoder.
func damaged(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return imageError("damaged: %w", err)
}

func (f format) pngSource(ctx context.Context, img image.Image) (source, error) {
	if f.colorType == pngGray {
		return grayOf(ctx, img, f.key)
	}
	switch img := img.(type) {
	case *image.Paletted:
		return paletteOf(img), nil
	case *image.RGBA:
		return pixels{img.Pix, img.Stride, 4, 1, false}, nil
	case *image.NRGBA: // Pillow takes no notice of a transparent colour of an RGB image
		return pixels{img.Pix, img.Stride, 4, 1, f.colorType != pngColor}, nil
	case *image.RGBA64:
		return pixels{img.Pix, img.Stride, 8, 2, false}, nil
	case *image.NRGBA64:
		return pixels{img.Pix, img.Stride, 8, 2, f.colorType != pngColor}, nil
	}
	return nil, imageError("decoded to %T, which is not supported; convert it to 8-bit RGB", img)
}

// overWhite is what Pillow makes of a sample with this alpha on white.
func overWhite(v, alpha byte) byte {
	t := uint32(v)*uint32(alpha) + 255*(255-uint32(alpha)) + 128
	return byte((t>>8 + t) >> 8)
}

// pixels is an image of red, green, blue and alpha in 8 or 16 bits, of which the
// high byte counts: Pillow drops the other.
type pixels struct {
	pix          []byte
	stride       int
	pixel, depth int // bytes
	alpha        bool
}

func (p pixels) row(y int, buf []byte) []byte {
	line := p.pix[y*p.stride:]
	dst := buf
	for ; len(dst) >= channels; dst, line = dst[channels:], line[p.pixel:] {
		r, g, b := line[0], line[p.depth], line[2*p.depth]
		if p.alpha {
			a := line[3*p.depth]
			r, g, b = overWhite(r, a), overWhite(g, a), overWhite(b, a)
		}
		dst[0], dst[1], dst[2] = r, g, b
	}
	return buf
}

func (p pixels) fork() source { return p }

// indexed is an image of which every byte stands for a colour.
type indexed struct {
	pix    []byte
	stride int
	colors [256][channels]byte
}

func (p *indexed) row(y int, buf []byte) []byte {
	dst := buf
	for _, v := range p.pix[y*p.stride:] {
		if len(dst) < channels {
			break
		}
		copy(dst, p.colors[v][:])
		dst = dst[channels:]
	}
	return buf
}

func (p *indexed) fork() source { return p }

func paletteOf(img *image.Paletted) source {
	s := &indexed{pix: img.Pix, stride: img.Stride}
	for i, c := range img.Palette {
		c := color.NRGBAModel.Convert(c).(color.NRGBA)
		s.colors[i] = [channels]byte{overWhite(c.R, c.A), overWhite(c.G, c.A), overWhite(c.B, c.A)}
	}
	return s
}

// grayOf is for gray images. The value key is transparent, so it becomes white.
func grayOf(ctx context.Context, img image.Image, key int) (source, error) {
	s := &indexed{}
	for i := range s.colors {
		v := byte(i)
		if i == key {
			v = 255
		}
		s.colors[i] = [channels]byte{v, v, v}
	}
	size := img.Bounds().Size()
	var pixel int // bytes from one to the next
	depth := 1
	switch img := img.(type) {
	case *image.Gray:
		s.pix, s.stride = img.Pix, img.Stride
		return s, nil
	case *image.NRGBA:
		s.pix, s.stride, pixel = img.Pix, img.Stride, 4
	case *image.Gray16:
		s.pix, s.stride, pixel, depth = img.Pix, img.Stride, 2, 2
	case *image.NRGBA64:
		s.pix, s.stride, pixel, depth = img.Pix, img.Stride, 8, 2
	default:
		return nil, imageError("decoded to %T, which is not supported; convert it to 8-bit gray", img)
	}
	// One byte each, in place. Of 16 bits Pillow makes 8 by cutting off at 255.
	for y := range size.Y {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		line := s.pix[y*s.stride:]
		for x := range size.X {
			v := line[x*pixel]
			if depth == 2 && v == 0 {
				v = line[x*pixel+1]
			} else if depth == 2 {
				v = 255
			}
			line[x] = v
		}
	}
	return s, nil
}

// orient turns an image by EXIF's orientation o.
func orient(ctx context.Context, s source, size image.Point, o int, b *buffers) (source, error) {
	switch {
	case o <= 1:
		return s, nil
	case o <= 4:
		return flipped{s, size, o == 2 || o == 3, o == 3 || o == 4}, nil
	}
	b.turned = grow(b.turned, channels*size.X*size.Y)
	t := transposed{pix: b.turned, stride: channels * size.Y}
	buf := make([]byte, channels*size.X)
	for y := range size.Y {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		for x, line := 0, s.row(y, buf); len(line) > 0; x, line = x+1, line[channels:] {
			copy(t.pix[x*t.stride+channels*y:], line[:channels])
		}
	}
	// Transposed it is orientation 5; the others are that, flipped.
	return orient(ctx, t, image.Pt(size.Y, size.X), map[int]int{5: 1, 6: 2, 7: 3, 8: 4}[o], b)
}

type flipped struct {
	source
	size    image.Point
	mirror  bool
	upwards bool
}

func (f flipped) row(y int, buf []byte) []byte {
	if f.upwards {
		y = f.size.Y - 1 - y
	}
	line := f.source.row(y, buf)
	if !f.mirror {
		return line
	}
	if &line[0] != &buf[0] {
		line = buf[:copy(buf, line)]
	}
	for l, r := 0, len(line)-channels; l < r; l, r = l+channels, r-channels {
		for c := range channels {
			line[l+c], line[r+c] = line[r+c], line[l+c]
		}
	}
	return line
}

func (f flipped) fork() source {
	f.source = f.source.fork()
	return f
}

type transposed struct {
	pix    []byte
	stride int
}

func (t transposed) row(y int, _ []byte) []byte { return t.pix[y*t.stride:][:t.stride] }

func (t transposed) fork() source { return t }
