package mmhash

import "encoding/binary"

// Image is a decoded PIL image.
type Image struct {
	// Mode is PIL's, such as "RGB", and Width and Height are in pixels.
	Mode          string
	Width, Height int
	// Pixels are the rows from the top without padding, as numpy.asarray gives
	// them: one byte for each band, for mode "I" and "F" 4 bytes little-endian,
	// for the modes "I;16..." 2 bytes in the order of the mode. Mode "1"
	// is a byte for each pixel, 0 or 255. They are not copied.
	Pixels []byte
	// Palette is nil for an image without one. Of the modes "P" and "PA" PIL
	// always has a palette, be it empty (of the type "bytearray").
	Palette *Palette
	// ID is the UUID that EXIF tag 0x800D (ImageID) holds. It is hashed in place
	// of the image. It must be a uuid.UUID, which only a Python program can have
	// put there: no file can hold one. (On malformed EXIF data vLLM before 0.31.0
	// fails. Nobody looks at them here.)
	ID *[16]byte
}

// Palette is the palette of a PIL image after the image was loaded.
type Palette struct {
	// Type is the Python type in which PIL holds the palette, on which the hash
	// depends: "bytes" (also if Type is empty) from a file, from convert, or of
	// bytes given to putpalette; "list" of a list or tuple given to putpalette;
	// "bytearray" in a new image, where the pickle is hashed.
	Type  string
	Bytes []byte // the colours, as PIL holds them: ImagePalette.palette
	// RawMode is ImagePalette.rawmode; empty is None, which it is of loaded
	// images.
	RawMode string
}

// modes are the modes of PIL images that can be made: the numpy type of a band
// and the number of bands, 0 where the array has two dimensions.
var modes = map[string]struct {
	dtype string
	bands int
}{
	"1": {"|b1", 0}, "L": {"|u1", 0}, "P": {"|u1", 0}, "I": {"<i4", 0}, "F": {"<f4", 0},
	"I;16": {"<u2", 0}, "I;16L": {"<u2", 0}, "I;16N": {"<u2", 0}, "I;16B": {">u2", 0},
	"LA": {"|u1", 2}, "La": {"|u1", 2}, "PA": {"|u1", 2},
	"RGB": {"|u1", 3}, "YCbCr": {"|u1", 3}, "LAB": {"|u1", 3}, "HSV": {"|u1", 3},
	"RGBA": {"|u1", 4}, "RGBa": {"|u1", 4}, "RGBX": {"|u1", 4}, "CMYK": {"|u1", 4},
}

func (s *stream) image(m *Image) {
	if m == nil {
		s.fail(errInvalid, "it is a nil *Image")
		return
	}
	if m.ID != nil {
		s.leafBytes(m.ID[:])
		return
	}
	mode, ok := modes[m.Mode]
	if !ok {
		s.fail(ErrUnsupported, "%s is no mode that a PIL image has", quote(m.Mode))
		return
	}
	d, _ := parseDType(mode.dtype)
	dims := [3]int{m.Height, m.Width, mode.bands}
	shape := dims[:]
	if mode.bands == 0 {
		shape = dims[:2]
	}
	if !s.fits("an image", shape, d.size, len(m.Pixels)) {
		return
	}
	parts := 2
	if m.Palette != nil {
		parts++
		if m.Palette.RawMode != "" {
			parts++
		}
	}
	s.leaf()
	outer := s.enter("image")
	s.mapping(parts)
	mark := s.key("mode")
	s.leafText(m.Mode)
	s.up(mark)
	mark = s.key("data")
	s.ndarray(mode.dtype, d, shape, m.Pixels)
	s.up(mark)
	if p := m.Palette; p != nil {
		mark = s.key("palette")
		s.palette(p)
		s.up(mark)
		if p.RawMode != "" {
			mark = s.key("palette_rawmode")
			s.leafText(p.RawMode)
			s.up(mark)
		}
	}
	s.leave(outer)
}

// The types of a palette, as they stand in a native stream.
const (
	paletteBytes = iota
	paletteList
	paletteByteArray
)

func (s *stream) paletteType(p *Palette) byte {
	switch p.Type {
	case "bytes", "":
		return paletteBytes
	case "list":
		return paletteList
	case "bytearray":
		return paletteByteArray
	}
	s.fail(errInvalid, "the palette type %s is unknown, want bytes, list or bytearray", quote(p.Type))
	return 0
}

func (s *stream) palette(p *Palette) {
	switch s.paletteType(p) {
	case paletteBytes:
		s.leafBytes(p.Bytes)
	case paletteList:
		s.sequence(len(p.Bytes))
		for i, b := range p.Bytes {
			mark := s.index(i)
			s.leafUint64(uint64(b))
			s.up(mark)
		}
	case paletteByteArray:
		if len(p.Bytes) > maxPalette {
			s.fail(errInvalid, "a palette has %d bytes, more than the %d of 256 colours", len(p.Bytes), maxPalette)
			return
		}
		s.leafBytes(pickleByteArray(p.Bytes))
	}
}

const maxPalette = 256 * 4

// pickleByteArray returns the pickle of a short bytearray in protocol 4, the
// default of CPython 3.8 to 3.13: bytearray(b"...") or, of an empty one,
// bytearray().
func pickleByteArray(b []byte) []byte {
	call := "\x8c\x08builtins\x94\x8c\x09bytearray\x94\x93\x94"
	switch n := len(b); {
	case n == 0:
		call += ")"
	case n < 256:
		call += "C" + string(byte(n)) + string(b) + "\x94\x85\x94"
	default:
		call += "B" + string(binary.LittleEndian.AppendUint32(nil, uint32(n))) + string(b) + "\x94\x85\x94"
	}
	call += "R\x94."
	return append(binary.LittleEndian.AppendUint64([]byte("\x80\x04\x95"), uint64(len(call))), call...)
}
