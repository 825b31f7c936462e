package warm

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// maxLine is the most bytes that a line of a list has: four times the longest path of Linux.
const maxLine = 16 << 10

var errNoImage = errors.New("no image: engines read PNG, JPEG, WebP, GIF, BMP and TIFF, known by their first bytes")

// Failure is an image that could not be sent, or a path that could not be read.
type Failure struct {
	Path string
	Err  error
}

// Found is what Find found.
type Found struct {
	Images   []string  // paths, in the order of the arguments, those of a folder by name
	Skipped  int       // files in folders that are no images
	Failures []Failure // what was named and is no image, and what could not be read
}

// Find returns the images that paths name. A path is an image, or a folder with images at any depth; what
// else is in a folder is skipped, and so are links to other folders. Each list has a path on each line,
// relative to the working directory; empty lines are skipped. Files are known by their first bytes, not by
// their names.
//
// The error is that of ctx or of a list. Everything else that went wrong is in Found.
func Find(ctx context.Context, paths []string, lists ...io.Reader) (Found, error) {
	var found Found
	for _, p := range paths {
		if err := found.add(ctx, p); err != nil {
			return Found{}, err
		}
	}
	for _, list := range lists {
		lines := bufio.NewScanner(list)
		lines.Buffer(nil, maxLine)
		for n := 1; lines.Scan(); n++ {
			line := lines.Text() // without a carriage return at its end
			if strings.ContainsRune(line, 0) {
				return Found{}, fmt.Errorf("line %d of the list has a zero byte: a list is a text with a path on each line", n)
			}
			if line == "" {
				continue
			}
			if err := found.add(ctx, line); err != nil {
				return Found{}, err
			}
		}
		if err := lines.Err(); err != nil {
			return Found{}, fmt.Errorf("the list of images can't be read (a line has at most %d bytes): %w",
				maxLine, err)
		}
	}
	return found, nil
}

// add adds what a path names. The error is that of ctx.
func (f *Found) add(ctx context.Context, path string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		f.fail(path, err)
		return nil
	}
	if !info.IsDir() {
		f.addFile(path, info, true)
		return nil
	}
	path += string(filepath.Separator) // WalkDir does not enter a link, unless it is written so
	return filepath.WalkDir(path, func(path string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			f.fail(path, err) // and what is in the folder is left out
			return nil
		}
		if d.IsDir() {
			return nil
		}
		info, err := os.Stat(path)
		if err != nil {
			f.fail(path, err)
			return nil
		}
		f.addFile(path, info, false)
		return nil
	})
}

// addFile adds a file that was named, or that is in a folder.
func (f *Found) addFile(path string, info fs.FileInfo, named bool) {
	ok := false
	if info.Mode().IsRegular() {
		var err error
		if ok, err = isImage(path); err != nil {
			f.fail(path, err)
			return
		}
	}
	switch {
	case ok:
		f.Images = append(f.Images, path)
	case named:
		f.fail(path, errNoImage)
	default:
		f.Skipped++
	}
}

func (f *Found) fail(path string, err error) {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err // the path stands beside it
	}
	f.Failures = append(f.Failures, Failure{path, err})
}
