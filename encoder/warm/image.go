package warm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/ringcache/ringcache/internal/sizes"
)

// sniffed is how many bytes at the beginning of a file show its type.
const sniffed = 32

// mediaType returns the media type of an image by its first bytes, or "" for what is no image of the types that
// engines read.
func mediaType(head []byte) string {
	switch {
	case bytes.HasPrefix(head, []byte("\x89PNG\r\n\x1a\n")):
		return "image/png"
	case bytes.HasPrefix(head, []byte("\xff\xd8\xff")):
		return "image/jpeg"
	case bytes.HasPrefix(head, []byte("GIF87a")), bytes.HasPrefix(head, []byte("GIF89a")):
		return "image/gif"
	case len(head) >= 12 && string(head[:4]) == "RIFF" && string(head[8:12]) == "WEBP":
		return "image/webp"
	case bytes.HasPrefix(head, []byte("II*\x00")), bytes.HasPrefix(head, []byte("MM\x00*")),
		// the latter two are BigTIFF
		bytes.HasPrefix(head, []byte("II+\x00")), bytes.HasPrefix(head, []byte("MM\x00+")):
		return "image/tiff"
	case len(head) >= 18 && string(head[:2]) == "BM" &&
		slices.Contains(bitmapHeaders, binary.LittleEndian.Uint32(head[14:])):
		return "image/bmp"
	}
	return ""
}

// bitmapHeaders are the sizes that the second header of a bitmap can have. Two letters alone are no proof.
var bitmapHeaders = []uint32{12, 16, 40, 52, 56, 64, 108, 124}

// isImage reports whether the file begins as an image does.
func isImage(path string) (ok bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	head := make([]byte, sniffed)
	n, err := io.ReadFull(f, head)
	if err != nil && n == 0 && err != io.EOF {
		return false, err
	}
	return mediaType(head[:n]) != "", nil
}

// read returns the bytes of an image that has no more than limit.
func read(path string, limit int64) (data []byte, media string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, "", err
	case !info.Mode().IsRegular():
		return nil, "", fmt.Errorf("%s is no file", path)
	case info.Size() > limit:
		return nil, "", &sizeError{info.Size(), limit}
	}
	buf := bytes.NewBuffer(make([]byte, 0, info.Size()+bytes.MinRead)) // the file may grow while it is read
	n, err := buf.ReadFrom(io.LimitReader(f, limit+1))
	switch {
	case err != nil:
		return nil, "", err
	case n > limit:
		return nil, "", &sizeError{n, limit}
	}
	if media = mediaType(buf.Bytes()); media == "" {
		return nil, "", errNoImage
	}
	return buf.Bytes(), media, nil
}

type sizeError struct{ size, limit int64 }

func (e *sizeError) Error() string {
	size, limit := sizes.Above(e.size, e.limit)
	return fmt.Sprintf("the image has %s, more than the limit of %s: make it smaller, or raise the limit", size, limit)
}
