package preprocess

import (
	"context"
	"errors"
	"fmt"
	"image"
)

// This is a JPEG decoder of its own, since Go's has another inverse transform
// than libjpeg, whose samples Pillow gives to the models: about one in thirty
// would be off, by up to 4. It reads what cameras and browsers write: 8 bits,
// Huffman codes, sequential or progressive, gray or three components. What is
// damaged is an error; libjpeg makes something up.

// jpegFile is a JPEG file while it is read.
// See docs/decisions.md, "The example decodes JPEG as Pillow does".
type jpegFile struct {
	rest        []byte
	size        image.Point
	progressive bool
	comps       []component
	maxH, maxV  int // sampling factors
	quant       [4]*[64]int32
	codes       [2][4]*code // of DC and of AC
	restart     int         // MCUs
	jfif        bool
	adobe       int // its transform, -1 if there is none
	exif, xmp   []byte
}

// component is a plane of samples.
type component struct {
	id            byte
	h, v          int // sampling factors
	table         byte
	width, height int // samples that count
	across, down  int // blocks, whole MCUs of them
	pix           []byte
	coefficients  [][64]int16 // progressive: of every block, in rows
	quant         *[64]int32
	seen          bool // in a scan
}

func (c *component) stride() int { return 8 * c.across }

// readJPEG reads up to the first scan, whose header it returns.
func readJPEG(file []byte) (j *jpegFile, scan []byte, err error) {
	j = &jpegFile{rest: file[2:], adobe: -1}
	if err := j.checkWork(); err != nil {
		return nil, nil, err
	}
	scan, err = j.segments()
	switch {
	case err != nil:
		return nil, nil, err
	case scan == nil || j.comps == nil:
		return nil, nil, errors.New("there is no picture in the JPEG file")
	}
	return j, scan, nil
}

// mcus is the size in MCUs.
func (j *jpegFile) mcus() image.Point {
	up := func(n, unit int) int { return (n + unit - 1) / unit }
	return image.Pt(up(j.size.X, 8*j.maxH), up(j.size.Y, 8*j.maxV))
}

// rgb reports whether the components are red, green and blue, as libjpeg guesses.
func (j *jpegFile) rgb() bool {
	switch {
	case len(j.comps) != 3 || j.jfif:
		return false
	case j.adobe >= 0:
		return j.adobe == 0
	}
	return j.comps[0].id == 'R' && j.comps[1].id == 'G' && j.comps[2].id == 'B'
}

// room gives every component its part of b. Samples that count are written by scans
// that are complete, and coefficients begin as 0.
func (j *jpegFile) room(b *buffers) {
	blocks := 0
	for _, c := range j.comps {
		blocks += c.across * c.down
	}
	b.samples = grow(b.samples, 64*blocks)
	if j.progressive {
		b.coefficients = grow(b.coefficients, blocks)
		clear(b.coefficients)
	}
	at := 0
	for i := range j.comps {
		c := &j.comps[i]
		n := c.across * c.down
		c.pix = b.samples[64*at:][:64*n]
		if j.progressive {
			c.coefficients = b.coefficients[at:][:n]
		}
		at += n
	}
}

// decode reads all scans, the first of which has this header.
func (j *jpegFile) decode(ctx context.Context, header []byte, b *buffers) error {
	j.room(b)
	for header != nil {
		s := &scan{jpegFile: j, buffers: b}
		if err := s.start(header); err != nil {
			return err
		}
		if err := s.read(ctx); err != nil {
			return err
		}
		j.rest = s.bitReader.rest
		var err error
		if header, err = j.segments(); err != nil {
			return err
		}
	}
	for i := range j.comps {
		c := &j.comps[i]
		if !c.seen {
			return fmt.Errorf("component %d is missing", c.id)
		}
		for at := range c.coefficients {
			if at%c.across == 0 && ctx.Err() != nil {
				return ctx.Err()
			}
			var b [64]int32
			for i, v := range c.coefficients[at] {
				b[i] = int32(v) * c.quant[i]
			}
			idct(&b, c.pix[c.place(at%c.across, at/c.across):], c.stride())
		}
		c.coefficients = nil
	}
	return nil
}

// place is where a block begins in the samples.
func (c *component) place(x, y int) int { return 8*y*c.stride() + 8*x }
