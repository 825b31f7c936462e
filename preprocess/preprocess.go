// Package preprocess turns photos into the multimodal items that vLLM's own
// frontend makes of them, for two families of models and in pure Go: LLaVA with
// a CLIP tower, and Qwen2-VL with Qwen2.5-VL. The tensors are written straight
// into memory that the caller has, such as that of an mmcache.Builder.
//
//	p, err := preprocess.Open(modelDir, preprocess.Options{})
//	size, err := preprocess.Inspect(file)       // reads the header only
//	layout, err := p.Layout(size)               // tensors, placeholder tokens
//	req, err := cache.Begin(ctx, id, mmcache.Want{Key: key, Bytes: layout.Bytes})
//	item, err := req.Item(ctx, key, preprocess.Producer(p, file, layout))
//
// The numbers are those of vLLM 0.32.0 with transformers 5.19.0, torchvision
// 0.29 and Pillow 13 on the CPU, which reference.py asks and the tests compare:
// Pillow decodes, turns the image by its EXIF data and puts what is
// transparent on white (vllm/multimodal/media/image.py); the image processors
// with torchvision (CLIPImageProcessor, Qwen2VLImageProcessor) do the rest. Every
// bit is theirs. Processors that resize with Pillow, as older transformers have
// them, differ by a step here and there.
//
// Files are JPEG or PNG. Of damaged ones, which Pillow makes something of unless
// they end too early, nothing is made here.
package preprocess

import (
	"context"
	"errors"
	"fmt"
	"image"

	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/serde"
)

var (
	// ErrImage is wrapped by errors that are the image's fault: it is damaged,
	// too large, too long, or of a kind that is not supported.
	ErrImage = errors.New("preprocess: bad image")
	// ErrModel is wrapped by errors of [Open]: the model directory, or what it
	// asks for, is not supported.
	ErrModel = errors.New("preprocess: unsupported model")
	// ErrLayout is wrapped by errors of Fill that are the caller's fault: the
	// layout or the memory are not what the image needs.
	ErrLayout = errors.New("preprocess: wrong layout")
)

// MaxPixels is the most pixels that an image may have, and the most that it may
// be resized to: vLLM's VLLM_MAX_IMAGE_PIXELS, and twice what Pillow warns of.
const MaxPixels = 178956970

// Processor makes the items of one model. It may be used from any number of
// goroutines. For a large image Fill starts up to three, which end before it returns.
type Processor interface {
	// Layout returns what the item of an image of this size in pixels, as Inspect
	// returns it, consists of. The error wraps ErrImage.
	Layout(size image.Point) (Layout, error)
	// Fill decodes the file, and writes every tensor of the layout that this
	// processor made for the file's size. tensor returns the memory of the elem
	// with that key, which must be of the tensor's length in bytes; it is not
	// used after Fill has returned. The error is that of ctx, or it wraps
	// ErrImage or ErrLayout; the tensors then hold anything.
	Fill(ctx context.Context, file []byte, l Layout, tensor func(key string) []byte) error
}

// Layout is what an image becomes.
type Layout struct {
	// Item has the item's tensors without Data. Layouts share it: don't write to it.
	Item *serde.Item
	// Tokens is how many placeholder tokens the prompt has for the image.
	Tokens int
	// Grid is the patches of Qwen's image_grid_thw: in time, down and across.
	// It is zero for CLIP.
	Grid [3]int
	// Bytes is what the item's tensors take together.
	Bytes int64
	// Scratch is the most bytes that Fill allocates besides, whatever the format. Of
	// those, up to 64 MiB of each goroutine stay for later Fills until the garbage
	// collector takes them.
	Scratch int64

	size image.Point
}

// Options are what the engine gets from its flags, not from its model.
type Options struct {
	// Normalize makes Qwen's pixels float tensors that are rescaled and
	// normalised, for engines that don't do that on their device: those with
	// mm_device_do_normalize off, and those before vLLM 0.28, which don't know it.
	// Otherwise the pixels are uint8. LLaVA's are always floats.
	Normalize bool
	// DType is what floats are sent as, the engine's dtype: vLLM casts them in
	// the frontend (vllm/multimodal/processing/context.py). It is one of float32,
	// which the empty string means, bfloat16 and float16.
	DType serde.DType
}

// Producer makes the item of a file for the cache. l is of the file's size.
// It sets no prompt updates: on a hit, too, Layout has what the prompt needs.
func Producer(p Processor, file []byte, l Layout) mmcache.Producer {
	return func(ctx context.Context, b *mmcache.Builder) error {
		if err := b.Layout(l.Item, nil); err != nil {
			return err
		}
		return p.Fill(ctx, file, l, b.Tensor)
	}
}

func imageError(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrImage, fmt.Errorf(format, args...))
}

// tensors gets the memory of the layout's tensors.
func (l Layout) tensors(get func(key string) []byte) (map[string][]byte, error) {
	m := make(map[string][]byte, len(l.Item.Elems))
	for _, e := range l.Item.Elems {
		n, err := e.Data.(*serde.Tensor).NBytes()
		if err != nil {
			return nil, err
		}
		b := get(e.Key)
		if len(b) != n {
			return nil, fmt.Errorf("%w: the memory of %s has %d bytes; give it %d", ErrLayout, e.Key, len(b), n)
		}
		m[e.Key] = b
	}
	return m, nil
}
