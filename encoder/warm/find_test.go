package warm

import (
	"context"
	"encoding/hex"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// heads are the first bytes of real files.
var heads = map[string]string{
	"image/png":  "89504e470d0a1a0a0000000d49484452",
	"image/jpeg": "ffd8ffe000104a464946000101",
	"image/gif":  "474946383961010001",
	"image/webp": "524946462400000057454250565038",
	"image/bmp":  "424d460000000000000036000000280000000200",
	"image/tiff": "49492a0008000000",
}

func TestMediaTypes(t *testing.T) {
	for want, text := range heads {
		b, err := hex.DecodeString(text)
		require.NoError(t, err)
		require.Equal(t, want, mediaType(b))
	}
	require.Equal(t, "image/tiff", mediaType([]byte("MM\x00*\x00\x00\x00\x08")))
	require.Equal(t, "image/tiff", mediaType([]byte("II+\x00\x08\x00\x00\x00")))
	require.Equal(t, "image/gif", mediaType([]byte("GIF87a")))
	for _, s := range []string{"", "B", "BM is how this text begins, with more", "BMW", "RIFF\x00\x00\x00\x00WAVEfmt ", "RIFF", "II", "<svg>", "%PDF-1.7", "GIF88a", "\x89PNG"} {
		require.Empty(t, mediaType([]byte(s)), "%q", s)
	}
	for _, name := range []string{"astronaut.png", "grace_hopper.jpg"} {
		ok, err := isImage(filepath.Join("..", "..", "examples", "media", name))
		require.NoError(t, err)
		require.True(t, ok)
	}
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	write := func(name, head string) string {
		b, err := hex.DecodeString(head)
		require.NoError(t, err)
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, b, 0o600))
		return path
	}
	a := write("book/1.png", heads["image/png"])
	b := write("book/10", heads["image/tiff"]) // by its bytes
	c := write("book/deep/er/2.jpg", heads["image/jpeg"])
	write("book/3.png", "00") // no image in spite of its name
	write("book/empty.png", "")
	d := write("alone.webp", heads["image/webp"])
	odd := write("odd \n\x1b name.gif", heads["image/gif"])
	require.NoError(t, os.Symlink(a, filepath.Join(dir, "book", "link.png")))
	require.NoError(t, os.Symlink(filepath.Join(dir, "book"), filepath.Join(dir, "book", "loop")))
	require.NoError(t, os.Symlink(filepath.Join(dir, "nowhere"), filepath.Join(dir, "book", "torn.png")))
	require.NoError(t, os.Symlink(filepath.Join(dir, "book"), filepath.Join(dir, "shelf")))
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "book", "pipe.png"), 0o600)) // reading it would wait for ever

	found, err := Find(t.Context(), []string{filepath.Join(dir, "book"), odd})
	require.NoError(t, err)
	require.Equal(t, []string{a, b, c, filepath.Join(dir, "book", "link.png"), odd}, found.Images)
	require.Equal(t, 4, found.Skipped, "3.png, empty.png, the pipe, and the link to a folder")
	require.Len(t, found.Failures, 1)
	require.Equal(t, filepath.Join(dir, "book", "torn.png"), found.Failures[0].Path)

	found, err = Find(t.Context(), []string{filepath.Join(dir, "shelf")})
	require.NoError(t, err)
	require.Len(t, found.Images, 4, "a link that is named is followed")

	list := strings.Join([]string{d, "", filepath.Join(dir, "book", "deep") + "\r", filepath.Join(dir, "gone.png"), filepath.Join(dir, "book", "3.png"), a}, "\n")
	found, err = Find(t.Context(), nil, strings.NewReader(list), strings.NewReader(d+"\n"))
	require.NoError(t, err)
	require.Equal(t, []string{d, c, a, d}, found.Images)
	require.Zero(t, found.Skipped)
	require.Len(t, found.Failures, 2)
	require.ErrorContains(t, found.Failures[0].Err, "no such file")
	require.NotContains(t, found.Failures[0].Err.Error(), "gone.png", "the path stands beside it")
	require.ErrorIs(t, found.Failures[1].Err, errNoImage, "who names a file wants it")

	_, err = Find(t.Context(), nil, strings.NewReader(strings.Repeat("x", maxLine+1)))
	require.ErrorContains(t, err, "at most 16384 bytes")
	_, err = Find(t.Context(), nil, strings.NewReader("\x89PNG\r\n\x1a\n\x00\x00"))
	require.ErrorContains(t, err, "a list is a text")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Find(ended, []string{dir})
	require.ErrorIs(t, err, context.Canceled)
}

func TestFindWithoutRights(t *testing.T) {
	if os.Getuid() == 0 || runtime.GOOS != "linux" {
		t.Skip("root may read everything")
	}
	dir, images := folder(t, 2)
	require.NoError(t, os.Chmod(images[0], 0))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "closed"), 0))
	found, err := Find(t.Context(), []string{dir})
	require.NoError(t, err)
	require.Len(t, found.Images, 1)
	require.Len(t, found.Failures, 2)
}
