package preprocess

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/color"
	"image/jpeg"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestLikeGo compares with Go's JPEG decoder, which differs in the last bits.
func TestLikeGo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, h := rapid.IntRange(1, 70).Draw(t, "w"), rapid.IntRange(1, 70).Draw(t, "h")
		seed := rapid.Uint32().Draw(t, "seed")
		img := image.NewRGBA(image.Rect(0, 0, w, h))
		for y := range h {
			for x := range w {
				seed = seed*1664525 + 1013904223
				img.SetRGBA(x, y, color.RGBA{byte(3*x + y), byte(seed >> 27), byte(2*y + int(seed>>30)), 255})
			}
		}
		var file bytes.Buffer
		require.NoError(t, jpeg.Encode(&file, img, &jpeg.Options{Quality: rapid.IntRange(1, 100).Draw(t, "quality")}))
		want, err := jpeg.Decode(bytes.NewReader(file.Bytes()))
		require.NoError(t, err)
		j, scan, err := readJPEG(file.Bytes())
		require.NoError(t, err)
		require.NoError(t, j.decode(t.Context(), scan, new(buffers)))
		y := want.(*image.YCbCr)
		for i := range w * h {
			a, b := int(y.Y[i/w*y.YStride+i%w]), int(j.comps[0].pix[i/w*j.comps[0].stride()+i%w])
			if max(a-b, b-a) > 2 {
				t.Fatalf("sample %d is %d, Go has %d", i, b, a)
			}
		}
	})
}

// TestCutOff takes the end off images.
func TestCutOff(t *testing.T) {
	p := processorOf(t, "llava-56")
	for name, file := range images(t) {
		if _, _, err := process(p, file); err != nil {
			continue
		}
		for _, n := range []int{1, 2, 13, len(file) / 3, len(file) / 2, len(file) - 30, len(file) - 3, len(file)} {
			_, _, err := process(p, file[:len(file)-min(n, len(file))])
			require.ErrorIs(t, err, ErrImage, "%s without the last %d bytes", name, n)
		}
	}
}

// withHeader gives a PNG another size.
func withHeader(file []byte, w, h uint32) []byte {
	out := bytes.Clone(file)
	binary.BigEndian.PutUint32(out[16:], w)
	binary.BigEndian.PutUint32(out[20:], h)
	binary.BigEndian.PutUint32(out[29:], crc32.ChecksumIEEE(out[12:29]))
	return out
}

// TestJunkInFrontOfARestartMarker: how far the decoder reads ahead decides nothing.
func TestJunkInFrontOfARestartMarker(t *testing.T) {
	file := readImage(t, "images/restarts.jpg")
	size, err := Inspect(file)
	require.NoError(t, err)
	scan := bytes.Index(file, []byte{0xff, 0xda})
	markers := 0
	for i := scan; i < len(file)-1; i++ {
		if file[i] != 0xff || file[i+1]&^7 != 0xd0 {
			continue
		}
		markers++
		for n := 1; n <= 9; n++ {
			_, err := decode(t.Context(), slices.Insert(slices.Clone(file), i, make([]byte, n)...), size, new(buffers))
			require.ErrorIs(t, err, ErrImage, "%d bytes in front of marker %d", n, markers)
		}
	}
	require.NotZero(t, markers)
}

func TestBadImages(t *testing.T) {
	pic := readImage(t, "images/rgb-57x31.png")
	photo := readImage(t, "images/420.jpg")
	sof := bytes.Index(photo, []byte{0xff, 0xc0})
	sos := bytes.Index(photo, []byte{0xff, 0xda})
	jpg := func(at int, b ...byte) []byte {
		out := bytes.Clone(photo)
		copy(out[at:], b)
		return out
	}
	for _, c := range []struct {
		name, text string
		file       []byte
	}{
		{"empty", "neither a JPEG nor a PNG", nil},
		{"text", "neither a JPEG nor a PNG", []byte("hello")},
		{"GIF", "GIF is not supported", []byte("GIF89a....")},
		{"WebP", "WebP is not supported", []byte("RIFF\x00\x00\x00\x00WEBPVP8 ")},
		{"CMYK", "CMYK JPEG is not supported", readImage(t, "images/cmyk.jpg")},
		{"PNG of many pixels", "at most 178956970", withHeader(pic, 20000, 20000)},
		{"PNG with a wrong header", "has only", withHeader(pic, 9000, 9000)},
		{"PNG with another height", "not enough pixel data", withHeader(pic, 57, 32)},
		{"PNG without pixels", "non-positive", withHeader(pic, 0, 5)},
		{"PNG with a wrong checksum", "checksum", append(bytes.Clone(pic[:len(pic)-13]), append([]byte{pic[len(pic)-13] ^ 1}, pic[len(pic)-12:]...)...)},
		{"JPEG of many pixels", "at most 178956970", jpg(sof+5, 0xff, 0xff, 0xff, 0xff)},
		{"JPEG with a wrong header", "has only", jpg(sof+5, 0x10, 0, 0x10, 0)},
		{"JPEG without pixels", "0 by 64", jpg(sof+7, 0, 0)},
		{"JPEG with more lines", "too early", jpg(sof+5, 0, 200)},
		{"JPEG with 12 bits", "12 bits", jpg(sof+4, 12)},
		{"arithmetic JPEG", "arithmetic", jpg(sof+1, 0xc9)},
		{"JPEG with two components", "2 components", jpg(sof+9, 2)},
		{"JPEG with bad factors", "bad JPEG header", jpg(sof+11, 0x50)},
		{"JPEG with odd factors", "fraction", jpg(sof+11, 0x32, 0, 2, 0x22)},
		{"JPEG with equal components", "bad JPEG header", jpg(sof+13, 1)},
		{"JPEG with a table missing", "quantization table", jpg(sof+12, 3)},
		{"JPEG with an unknown component", "bad scan", jpg(sos+5, 9)},
		{"JPEG with a component twice", "bad scan", jpg(sos+7, 1)},
		{"JPEG with a code missing", "bad scan", jpg(sos+6, 0x33)},
		{"JPEG without a picture", "no picture", []byte("\xff\xd8\xff\xd9")},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := process(processorOf(t, "llava-56"), c.file)
			require.ErrorIs(t, err, ErrImage)
			require.ErrorContains(t, err, c.text)
		})
	}
	_, err := processorOf(t, "qwen2-vl").Layout(image.Pt(201, 1))
	require.ErrorContains(t, err, "crop it")
	_, err = processorOf(t, "llava-56").Layout(image.Pt(1, 60000000))
	require.ErrorContains(t, err, "become")
	for _, run := range []string{"llava-56", "qwen2-vl"} {
		for _, size := range []image.Point{{}, {0, 5}, {-3, 7}, {1 << 30, 1 << 30}} {
			_, err := processorOf(t, run).Layout(size)
			require.ErrorIs(t, err, ErrImage)
		}
	}
}

// TestManyScans refuses a small file that asks for endless work.
func TestManyScans(t *testing.T) {
	file := readImage(t, "images/progressive.jpg")
	marker := func(from int, of ...byte) int {
		at := bytes.Index(file[from:], append([]byte{0xff}, of...))
		require.GreaterOrEqual(t, at, 0)
		return from + at
	}
	first := marker(0, mSOS)
	second := marker(first+1, mSOS) // of AC
	end := marker(second+1, mDHT)
	repeat := func(n int) error {
		many := append(bytes.Clone(file[:end]), bytes.Repeat(file[second:end], n)...)
		_, _, err := process(processorOf(t, "llava-56"), append(many, file[end:]...))
		return err
	}
	require.NoError(t, repeat(20))
	err := repeat(maxScans)
	require.ErrorIs(t, err, ErrImage)
	require.ErrorContains(t, err, "more than 100 scans")
}
