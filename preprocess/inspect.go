package preprocess

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/png"
	"regexp"
)

// format is what the header of a file contains.
type format struct {
	size        image.Point // as stored
	orientation int         // 1..8, see orient
	jpeg        *jpegFile   // nil for PNG
	scan        []byte      // header of the first
	colorType   byte        // of PNG
	bits        int64       // of PNG, for each pixel
	key         int         // of a gray PNG: the value that is transparent, or -1
}

// maxMetadata is the most bytes of EXIF and XMP data that are searched for how the
// image is to be turned: sixteen times what a writer can put into one segment.
const maxMetadata = 1 << 20

// PNG's colour types.
const (
	pngGray       = 0
	pngColor      = 2
	pngPalette    = 3
	pngGrayAlpha  = 4
	pngColorAlpha = 6
)

// Inspect returns the width and height that the image of a file will have,
// turned by its EXIF or XMP data, without decoding it. Unlike Pillow it
// doesn't look for those in compressed text of a PNG. The error wraps [ErrImage].
func Inspect(file []byte) (image.Point, error) {
	f, err := parse(file)
	return f.turned(), err
}

func (f format) turned() image.Point {
	if f.orientation > 4 {
		return image.Pt(f.size.Y, f.size.X)
	}
	return f.size
}

func parse(file []byte) (format, error) {
	f := format{orientation: 1, key: -1}
	var err error
	switch {
	case bytes.HasPrefix(file, []byte("\x89PNG\r\n\x1a\n")):
		var c image.Config
		if c, err = png.DecodeConfig(bytes.NewReader(file)); err == nil {
			f.size = image.Pt(c.Width, c.Height)
			err = f.pngChunks(file)
		}
	case bytes.HasPrefix(file, []byte("\xff\xd8\xff")):
		if f.jpeg, f.scan, err = readJPEG(file); err == nil {
			f.size, f.orientation = f.jpeg.size, orientation(f.jpeg.exif, f.jpeg.xmp)
		}
	case bytes.HasPrefix(file, []byte("GIF8")):
		err = errors.New("GIF is not supported; convert it to PNG")
	case len(file) >= 12 && string(file[:4]) == "RIFF" && string(file[8:12]) == "WEBP":
		err = errors.New("WebP is not supported; convert it to JPEG or PNG")
	default:
		err = errors.New("neither a JPEG nor a PNG file")
	}
	if err != nil {
		return format{}, imageError("%w", err)
	}
	if err := f.plausible(len(file)); err != nil {
		return format{}, err
	}
	return f, nil
}

// plausible refuses what no decoder should make room for: too many pixels, or
// more than so short a file can have.
func (f format) plausible(n int) error {
	w, h := f.size.X, f.size.Y
	if w < 1 || h < 1 {
		return imageError("%d by %d pixels", w, h)
	}
	if w > MaxPixels/h {
		return imageError("%d by %d pixels; at most %d are allowed", w, h, MaxPixels)
	}
	// A JPEG has a bit at least for every block of 64 samples of its largest plane.
	// Deflate makes 1032 bytes of one at most.
	bits, most := int64(1), 64*8*int64(n)
	if f.jpeg == nil {
		bits, most = f.bits, 1032*8*int64(n)
	}
	if int64(w*h)*bits > most {
		return imageError("the header announces %d by %d pixels, but the file has only %d bytes", w, h, n)
	}
	return nil
}

// pngChunks looks for what Pillow heeds besides the pixels: the transparent
// value of a gray image, and how it is to be turned. It looks at chunks behind
// the pixels, too. The checksums are verified when the image is decoded.
func (f *format) pngChunks(file []byte) error {
	f.colorType = file[25]
	depth := file[24]
	f.bits = int64(depth) * [...]int64{pngGray: 1, pngColor: 3, pngPalette: 1, pngGrayAlpha: 2, pngColorAlpha: 4}[f.colorType]
	var exif, xmp []byte
	for rest := file[8:]; len(rest) >= 12; {
		n := int(binary.BigEndian.Uint32(rest))
		if n > len(rest)-12 {
			break
		}
		kind, data := string(rest[4:8]), rest[8:8+n]
		rest = rest[12+n:]
		switch kind {
		case "tRNS":
			if f.colorType != pngGray || len(data) < 2 {
				continue
			}
			// Pillow compares the low byte with what the sample becomes in 8 bits,
			// where the standard means the sample itself; with one bit it doesn't.
			f.key = int(data[1])
			if depth == 1 {
				f.key = 0
				if data[0]|data[1] != 0 {
					f.key = 255
				}
			}
		case "eXIf":
			if n > maxMetadata {
				return fmt.Errorf("its eXIf chunk has %d bytes, at most %d are allowed; remove it", n, maxMetadata)
			}
			exif = data
		case "iTXt":
			text, isXMP := bytes.CutPrefix(data, []byte("XML:com.adobe.xmp\x00"))
			if isXMP && n > maxMetadata {
				return fmt.Errorf("its iTXt chunk of XMP data has %d bytes, at most %d are allowed; remove it", n, maxMetadata)
			}
			if isXMP && len(text) > 2 && text[0] == 0 { // not compressed
				xmp = text
			}
		case "IEND":
			rest = nil
		}
	}
	f.orientation = orientation(exif, xmp)
	return nil
}

var xmpOrientation = regexp.MustCompile(`tiff:Orientation(?:="|>)([0-9])`)

// orientation returns how an image is to be turned, 1 if it isn't: from the
// first directory of its EXIF data, or if that is silent from its XMP data, as
// Pillow's exif_transpose has it.
func orientation(exif, xmp []byte) int {
	o, ok := exifOrientation(exif)
	if m := xmpOrientation.FindSubmatch(xmp); !ok && m != nil {
		o = int(m[1][0] - '0')
	}
	if o < 1 || o > 8 {
		return 1
	}
	return o
}

func exifOrientation(b []byte) (orientation int, ok bool) {
	if len(b) < 8 {
		return 0, false
	}
	var order binary.ByteOrder = binary.BigEndian
	if b[0] == 'I' {
		order = binary.LittleEndian
	}
	magic := order.Uint16(b[2:])
	if head := string(b[:2]); head != "II" && head != "MM" || magic != 42 && magic != 42<<8 { // Pillow takes both
		return 0, false
	}
	at := uint64(order.Uint32(b[4:]))
	if at+2 > uint64(len(b)) {
		return 0, false
	}
	n := int(order.Uint16(b[at:]))
	const tag, short, long = 0x0112, 3, 4
	for e := b[at+2:]; n > 0 && len(e) >= 12; n, e = n-1, e[12:] {
		if order.Uint16(e) != tag {
			continue
		}
		// The values lie in the entry itself; of several the first counts.
		kind, count := order.Uint16(e[2:]), order.Uint32(e[4:])
		switch {
		case kind == short && (count == 1 || count == 2):
			orientation, ok = int(order.Uint16(e[8:])), true
		case kind == long && count == 1:
			orientation, ok = int(order.Uint32(e[8:])), true
		}
	}
	return orientation, ok
}
