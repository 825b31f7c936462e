package preprocess

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/serde"
)

// runs are those of reference.py.
var runs = map[string]struct {
	model   string
	options Options
}{
	"llava-56":                     {"llava-56", Options{}},
	"llava-56-bfloat16":            {"llava-56", Options{DType: "bfloat16"}},
	"llava-56-float16":             {"llava-56", Options{DType: "float16"}},
	"llava-336":                    {"llava-336", Options{}},
	"qwen2-vl":                     {"qwen2-vl", Options{}},
	"qwen2-vl-normalized":          {"qwen2-vl", Options{Normalize: true}},
	"qwen2-vl-normalized-bfloat16": {"qwen2-vl", Options{Normalize: true, DType: "bfloat16"}},
	"qwen2.5-vl":                   {"qwen2.5-vl", Options{}},
}

// reference is what vLLM made of an image.
type reference struct {
	Run, Image string
	Error      string
	Size       [2]int
	Tokens     int
	Grid       [3]int
	Sum        string `json:"sha256"` // of pixel_values
	Main       string // encoded without the large tensors
	Tensors    map[string]struct {
		DType serde.DType
		Shape []int
		File  string
	}
}

func references(t testing.TB, path string) []reference {
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	var out []reference
	require.NoError(t, json.Unmarshal(b, &out))
	require.NotEmpty(t, out)
	return out
}

func processorOf(t testing.TB, run string) Processor {
	r, ok := runs[run]
	require.True(t, ok, "unknown run %q; add it here", run)
	p, err := Open(filepath.Join("testdata", "models", r.model), r.options)
	require.NoError(t, err)
	return p
}

// readImage reads media/... or images/..., as reference.py names them.
func readImage(t testing.TB, name string) []byte {
	dir := "testdata"
	if strings.HasPrefix(name, "media/") {
		dir = "../examples"
	}
	b, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	return b
}

// process makes the whole item of a file.
func process(p Processor, file []byte) (Layout, *serde.Item, error) {
	size, err := Inspect(file)
	if err != nil {
		return Layout{}, nil, err
	}
	l, err := p.Layout(size)
	if err != nil {
		return l, nil, err
	}
	it := &serde.Item{Modality: l.Item.Modality}
	for _, e := range l.Item.Elems {
		tensor := *e.Data.(*serde.Tensor)
		n, err := tensor.NBytes()
		if err != nil {
			return l, nil, err
		}
		tensor.Data = make([]byte, n)
		for i := range tensor.Data {
			tensor.Data[i] = 0xa5 // memory of the cache is not clear
		}
		e.Data = &tensor
		it.Elems = append(it.Elems, e)
	}
	return l, it, p.Fill(context.Background(), file, l, func(key string) []byte { return tensorOf(it, key).Data })
}

func tensorOf(it *serde.Item, key string) *serde.Tensor {
	e, ok := it.Lookup(key)
	if !ok {
		return nil
	}
	return e.Data.(*serde.Tensor)
}

// unsupported are images that vLLM takes and this package refuses.
var unsupported = []string{"images/cmyk.jpg"}

// check compares everything but the pixels, and returns the item; nil where both
// refuse it.
func check(t *testing.T, p Processor, r reference) *serde.Item {
	file := readImage(t, r.Image)
	l, it, err := process(p, file)
	if r.Error != "" || slices.Contains(unsupported, r.Image) {
		require.ErrorIs(t, err, ErrImage, r.Error)
		return nil
	}
	require.NoError(t, err)
	require.Equal(t, image.Pt(r.Size[0], r.Size[1]), l.size)
	require.Equal(t, r.Tokens, l.Tokens)
	require.Equal(t, r.Grid, l.Grid)
	var sum int64
	for _, e := range it.Elems {
		sum += int64(len(e.Data.(*serde.Tensor).Data))
	}
	require.Equal(t, sum, l.Bytes)
	if r.Main != "" {
		frames, err := serde.NewPlan(it, serde.Options{})
		require.NoError(t, err)
		require.Equal(t, r.Main, hex.EncodeToString(frames.Frames()[0]), "what goes on the wire")
	}
	return it
}

// TestReference compares the items with those that vLLM made: with the tensors of
// reference.py, if PREPROCESS_REFERENCE names their folder, and prints then how far
// the numbers are apart in steps of a pixel's byte; else with sums of them.
func TestReference(t *testing.T) {
	dir := os.Getenv("PREPROCESS_REFERENCE")
	path := filepath.Join(dir, "manifest.json")
	if dir == "" {
		path = filepath.Join("testdata", "golden.json")
	}
	for _, r := range references(t, path) {
		t.Run(r.Run+"/"+r.Image, func(t *testing.T) {
			p := processorOf(t, r.Run)
			it := check(t, p, r)
			if it == nil {
				return
			}
			if dir == "" {
				sum := sha256.Sum256(tensorOf(it, "pixel_values").Data)
				require.Equal(t, r.Sum, hex.EncodeToString(sum[:]))
				return
			}
			require.NotEmpty(t, r.Tensors)
			for key, want := range r.Tensors {
				got := tensorOf(it, key)
				require.NotNil(t, got, key)
				require.Equal(t, want.DType, got.DType)
				require.Equal(t, want.Shape, got.Shape)
				b, err := os.ReadFile(filepath.Join(dir, want.File))
				require.NoError(t, err)
				if key != "pixel_values" {
					require.Equal(t, b, got.Data)
					continue
				}
				steps, err := compare(p, got, b)
				require.NoError(t, err)
				t.Logf("grid %v, %d tokens: numbers by steps apart: %v", r.Grid, r.Tokens, steps)
				for n := range steps {
					require.LessOrEqual(t, n, 1)
				}
			}
		})
	}
}

// compare counts by how many steps of the byte the numbers are apart.
func compare(p Processor, got *serde.Tensor, want []byte) (map[int]int, error) {
	if len(got.Data) != len(want) {
		return nil, fmt.Errorf("%d bytes in place of %d", len(got.Data), len(want))
	}
	var v *pixelValues
	plane := 0 // values of a channel in a row
	switch p := p.(type) {
	case *clipProcessor:
		v, plane = p.values, p.side*p.side
	case *qwenProcessor:
		v, plane = p.values, p.frames*p.patch*p.patch
	}
	n := v.size
	var back [channels]map[[4]byte]int
	for c := range channels {
		back[c] = map[[4]byte]int{}
		for i, b := range v.of[c] {
			back[c][b] = i
		}
	}
	steps := map[int]int{}
	for i := 0; i < len(want); i += n {
		var a, b [4]byte
		copy(a[:n], got.Data[i:i+n])
		copy(b[:n], want[i:i+n])
		c := i / n / plane % channels
		g, ok := back[c][a]
		w, ok2 := back[c][b]
		if !ok || !ok2 {
			return nil, errors.New("a number that is none of the 256: " + fmt.Sprint(math.Float32frombits(binary.LittleEndian.Uint32(b[:]))))
		}
		steps[max(g-w, w-g)]++
	}
	return steps, nil
}
