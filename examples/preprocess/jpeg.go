package preprocess

import (
	"bytes"
	"encoding/binary"
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

// Markers.
const (
	mSOF0 = 0xc0
	mSOF2 = 0xc2
	mDHT  = 0xc4
	mRST0 = 0xd0
	mSOI  = 0xd8
	mEOI  = 0xd9
	mSOS  = 0xda
	mDQT  = 0xdb
	mDNL  = 0xdc
	mDRI  = 0xdd
	mAPP0 = 0xe0
	mAPP1 = 0xe1
	mAPPE = 0xee
)

var errShort = errors.New("the file ends too early")

// zigzag is the place in a block of the coefficients as they are stored.
var zigzag = func() (z [64]uint8) {
	x, y, up := 0, 0, true
	for i := range z {
		z[i] = uint8(8*y + x)
		switch {
		case up && x == 7:
			y, up = y+1, false
		case up && y == 0:
			x, up = x+1, false
		case up:
			x, y = x+1, y-1
		case y == 7:
			x, up = x+1, true
		case x == 0:
			y, up = y+1, true
		default:
			x, y = x-1, y+1
		}
	}
	return z
}()

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

// checkWork refuses a file that asks for too much work, before any of it is done. It
// looks at the markers only.
func (j *jpegFile) checkWork() error {
	rest := jpegFile{rest: j.rest}
	var scans, tables, exif int
	for {
		marker, data, err := rest.next()
		switch {
		case err != nil || marker == mEOI:
			return nil // what is missing the decoder reports
		case marker == mSOS:
			scans++
		case marker == mDHT || marker == mDQT:
			tables += len(data)
		case marker == mAPP1:
			exif += len(data)
		}
		switch {
		case scans > maxScans:
			return fmt.Errorf("it has more than %d scans; convert it", maxScans)
		case tables > maxTables:
			return fmt.Errorf("its tables have more than %d bytes; convert it", maxTables)
		case exif > maxMetadata:
			return fmt.Errorf("its EXIF and XMP data have more than %d bytes; remove them", maxMetadata)
		}
	}
}

// next returns the next marker and what its segment holds.
func (j *jpegFile) next() (marker byte, data []byte, err error) {
	for {
		at := bytes.IndexByte(j.rest, 0xff)
		if at < 0 || at+1 >= len(j.rest) {
			return 0, nil, errShort
		}
		marker, j.rest = j.rest[at+1], j.rest[at+1:]
		if marker != 0 && marker != 0xff {
			break
		}
	}
	j.rest = j.rest[1:]
	if marker == 0x01 || mRST0 <= marker && marker <= mEOI {
		return marker, nil, nil
	}
	if len(j.rest) < 2 {
		return 0, nil, errShort
	}
	n := int(binary.BigEndian.Uint16(j.rest))
	if n < 2 || n > len(j.rest) {
		return 0, nil, errShort
	}
	data, j.rest = j.rest[2:n], j.rest[n:]
	return marker, data, nil
}

// segments reads to the next scan, and returns its header, nil at the end.
func (j *jpegFile) segments() ([]byte, error) {
	for {
		marker, data, err := j.next()
		if err != nil {
			return nil, err
		}
		switch {
		case marker == mEOI:
			return nil, nil
		case marker == mSOS:
			return data, nil
		case marker == mDQT:
			err = j.quantTables(data)
		case marker == mDHT:
			err = j.huffmanTables(data)
		case mSOF0 <= marker && marker <= mSOF2:
			j.progressive = marker == mSOF2
			err = j.frame(data)
		case mSOF2 < marker && marker < mRST0 && marker != 0xc8 && marker != 0xcc:
			err = errors.New("a lossless, hierarchical or arithmetic JPEG is not supported; convert it")
		case marker == mDNL:
			err = errors.New("a JPEG that tells its height at the end is not supported; convert it")
		case marker == mDRI && len(data) >= 2:
			j.restart = int(binary.BigEndian.Uint16(data))
		case marker == mAPP0 && len(data) >= 14 && string(data[:5]) == "JFIF\x00":
			j.jfif = true
		case marker == mAPPE && len(data) >= 12 && string(data[:5]) == "Adobe":
			j.adobe = int(data[11])
		case marker == mAPP1:
			if more, ok := bytes.CutPrefix(data, []byte("Exif\x00\x00")); ok {
				j.exif = append(j.exif, more...) // Pillow joins them
			} else if text, ok := bytes.CutPrefix(data, []byte("http://ns.adobe.com/xap/1.0/\x00")); ok {
				j.xmp = text
			}
		}
		if err != nil {
			return nil, err
		}
	}
}

func (j *jpegFile) quantTables(b []byte) error {
	for len(b) > 0 {
		wide, id := b[0]>>4, b[0]&15
		b = b[1:]
		if wide > 1 || id > 3 || len(b) < 64<<wide {
			return errors.New("a bad quantization table")
		}
		t := new([64]int32)
		for i, at := range zigzag {
			if wide == 1 {
				t[at] = int32(binary.BigEndian.Uint16(b[2*i:]))
			} else {
				t[at] = int32(b[i])
			}
		}
		j.quant[id] = t
		b = b[64<<wide:]
	}
	return nil
}

func (j *jpegFile) frame(b []byte) error {
	if j.comps != nil {
		return errors.New("there are two pictures in one JPEG")
	}
	if len(b) < 6 || len(b) < 6+3*int(b[5]) {
		return errShort
	}
	if b[0] != 8 {
		return fmt.Errorf("a JPEG with %d bits is not supported; convert it to 8", b[0])
	}
	n := int(b[5])
	if n == 4 {
		return errors.New("a CMYK JPEG is not supported; convert it to RGB")
	}
	if n != 1 && n != 3 {
		return fmt.Errorf("a JPEG with %d components is not supported; convert it to RGB", n)
	}
	j.size = image.Pt(int(binary.BigEndian.Uint16(b[3:])), int(binary.BigEndian.Uint16(b[1:])))
	comps := make([]component, n)
	for i := range comps {
		c := b[6+3*i:]
		comps[i] = component{id: c[0], h: int(c[1] >> 4), v: int(c[1] & 15), table: c[2]}
		if n == 1 {
			comps[i].h, comps[i].v = 1, 1 // factors say nothing then
		}
		h, v := comps[i].h, comps[i].v
		if h < 1 || h > 4 || v < 1 || v > 4 || c[2] > 3 {
			return errors.New("a bad JPEG header")
		}
		for _, other := range comps[:i] {
			if other.id == c[0] {
				return errors.New("a bad JPEG header")
			}
		}
		j.maxH, j.maxV = max(j.maxH, h), max(j.maxV, v)
	}
	mcus := j.mcus()
	for i := range comps {
		c := &comps[i]
		if j.maxH%c.h != 0 || j.maxV%c.v != 0 {
			return errors.New("chroma in a fraction of the size is not supported; convert it to 4:2:0")
		}
		c.width, c.height = (j.size.X*c.h+j.maxH-1)/j.maxH, (j.size.Y*c.v+j.maxV-1)/j.maxV
		c.across, c.down = mcus.X*c.h, mcus.Y*c.v
	}
	j.comps = comps
	return nil
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

// code is a Huffman code.
type code struct {
	short   [1 << shortBits]uint16 // length<<8 | value of what begins so; 0: it is longer
	limit   [17]int32              // of each length: its codes are below
	offset  [17]int32              // of a length's codes to their values
	symbols []byte
}

const shortBits = 9

func (j *jpegFile) huffmanTables(b []byte) error {
	for len(b) > 0 {
		if len(b) < 17 {
			return errShort
		}
		class, id := b[0]>>4, b[0]&15
		counts := b[1:17]
		n := 0
		for _, c := range counts {
			n += int(c)
		}
		if class > 1 || id > 3 || n > 256 || len(b) < 17+n {
			return errBadCode
		}
		t := &code{symbols: b[17 : 17+n]}
		next, at := int32(0), int32(0)
		for length := 1; length <= 16; length++ {
			t.offset[length] = at - next
			for range counts[length-1] {
				if next >= 1<<length {
					return errBadCode
				}
				if free := shortBits - length; free >= 0 {
					for i := range 1 << free {
						t.short[int(next)<<free+i] = uint16(length)<<8 | uint16(t.symbols[at])
					}
				}
				next++
				at++
			}
			t.limit[length] = next
			next <<= 1
		}
		j.codes[class][id] = t
		b = b[17+n:]
	}
	return nil
}
