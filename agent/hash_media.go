package agent

import (
	"encoding/json"
	"math"
	"strings"

	"github.com/ringcache/ringcache/mmhash"
)

// image takes the pixels in the form of PIL's frombytes, which differs from
// that of numpy.asarray for mode "1".
func (d hashDecoder) image(j *imageJSON) any {
	m := &mmhash.Image{Mode: j.Mode, Pixels: j.Hex}
	if len(j.Size) != 2 {
		d.fail("image: size is [width, height]")
	}
	m.Width, m.Height = j.Size[0], j.Size[1]
	if m.Mode == "1" {
		d.unpack(m)
	}
	switch paletted := m.Mode == "P" || m.Mode == "PA"; {
	case j.Palette != nil && !paletted:
		d.fail("image: one of mode %.20q has no palette", m.Mode)
	case j.Palette != nil:
		m.Palette = &mmhash.Palette{Bytes: *j.Palette}
	case paletted: // what a new image has
		m.Palette = &mmhash.Palette{Type: "bytearray"}
	}
	return m
}

// unpack makes a byte of each bit. Rows begin at whole bytes, with the highest
// bit.
func (d hashDecoder) unpack(m *mmhash.Image) {
	bits := m.Pixels
	m.Pixels = nil
	if m.Width < 0 || m.Height < 0 || m.Width > math.MaxInt-7 {
		d.fail("image: negative size, or a very large one")
	}
	row := (m.Width + 7) / 8
	if m.Width == 0 || m.Height == 0 {
		row = 0
	}
	// Divided and not multiplied, which could overflow.
	if row == 0 && len(bits) != 0 || row > 0 && (len(bits)%row != 0 || len(bits)/row != m.Height) {
		d.fail("image: %d bytes, which are not %d rows of %d pixels, 8 in a byte", len(bits), m.Height, m.Width)
	}
	if row == 0 {
		return
	}
	m.Pixels = make([]byte, m.Width*m.Height)
	for i := range m.Pixels {
		y, x := i/m.Width, i%m.Width
		if bits[y*row+x/8]&(0x80>>(x%8)) != 0 {
			m.Pixels[i] = 0xff
		}
	}
}

func (d hashDecoder) media(j *mediaJSON, depth int) any {
	if j.Bytes == nil {
		d.fail("media: field \"bytes\" is missing")
	}
	data := *j.Bytes
	switch j.Kind {
	case "image":
		m := &mmhash.EncodedImage{Data: data}
		if len(j.IOConfig) > 0 && string(j.IOConfig) != "null" {
			switch v := d.value(j.IOConfig, depth+1).(type) {
			case []mmhash.Entry:
				m.IOConfig = v
			case nil:
			default:
				d.fail("media: io_config is a map")
			}
		}
		if j.EXIFUUID != nil {
			id := d.unhex("exif_uuid", strings.ReplaceAll(*j.EXIFUUID, "-", ""))
			if len(id) != 16 {
				d.fail("media: an exif_uuid of %d bytes, want 16", len(id))
			}
			m.ID = (*[16]byte)(id)
		}
		return m
	case "video":
		return &mmhash.EncodedVideo{Data: data, Frames: d.frames(j.Frames, depth+1)}
	}
	d.fail("media: unknown kind %.20q, want image or video", j.Kind)
	return nil
}

// frames are an ndarray or a tensor, as a value or, for an ndarray, its inside
// alone.
func (d hashDecoder) frames(raw rawJSON, depth int) any {
	var j struct {
		DType *string `json:"dtype"`
	}
	if json.Unmarshal(raw, &j) == nil && j.DType != nil {
		var a denseJSON
		if err := unmarshal(raw, &a); err != nil {
			d.fail("media: frames: %w", err)
		}
		return &mmhash.Array{DType: a.DType, Shape: a.Shape, Data: d.dense(&a)}
	}
	if len(raw) == 0 {
		d.fail("media: field \"frames\" is missing")
	}
	return d.value(raw, depth)
}
