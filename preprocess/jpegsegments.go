package preprocess

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
)

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

const (
	// maxScans bounds the work that a short progressive file can ask for.
	maxScans = 100
	// maxTables bounds the bytes of all tables: each short one is expanded.
	maxTables = 256 << 10
)

var errShort = errors.New("the file ends too early")

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
			err = errors.New("a JPEG with its height at the end is not supported; convert it")
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
			comps[i].h, comps[i].v = 1, 1 // the factors mean nothing then
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
