package preprocess

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/ringcache/ringcache/internal/shortfloat"
	"github.com/ringcache/ringcache/serde"
)

// settings are what preprocessor_config.json contains, with transformers' names. What
// is missing or null is the image processor's default.
type settings struct {
	Type    string `json:"image_processor_type"`
	OldType string `json:"feature_extractor_type"`

	Resize     *bool           `json:"do_resize"`
	Size       json.RawMessage `json:"size"`
	MinPixels  *int            `json:"min_pixels"`
	MaxPixels  *int            `json:"max_pixels"`
	Resample   *int            `json:"resample"`
	CenterCrop *bool           `json:"do_center_crop"`
	CropSize   json.RawMessage `json:"crop_size"`
	Pad        *bool           `json:"do_pad"`

	Rescale   *bool     `json:"do_rescale"`
	Factor    *float64  `json:"rescale_factor"`
	Normalize *bool     `json:"do_normalize"`
	Mean      []float64 `json:"image_mean"`
	Std       []float64 `json:"image_std"`

	PatchSize    *int `json:"patch_size"`
	TemporalSize *int `json:"temporal_patch_size"`
	MergeSize    *int `json:"merge_size"`
}

// model is what config.json contains.
type model struct {
	Type     string  `json:"model_type"`
	Strategy *string `json:"vision_feature_select_strategy"`
	Vision   *struct {
		Type         string `json:"model_type"`
		ImageSize    *int   `json:"image_size"`
		PatchSize    *int   `json:"patch_size"`
		TemporalSize *int   `json:"temporal_patch_size"`
		MergeSize    *int   `json:"spatial_merge_size"`
	} `json:"vision_config"`
}

const (
	bicubic    = 3       // PIL's number
	maxSetting = 1 << 16 // pixels of a side
)

// Open reads config.json and preprocessor_config.json (or the image_processor of
// processor_config.json, which comes first as in transformers 5) of a model
// directory, and returns the processor of the model. The error wraps [ErrModel].
func Open(dir string, o Options) (Processor, error) {
	p, err := open(dir, o)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrModel, dir, err)
	}
	return p, nil
}

func open(dir string, o Options) (Processor, error) {
	switch o.DType {
	case "":
		o.DType = "float32"
	case "float32", "bfloat16", "float16":
	default:
		return nil, fmt.Errorf("dtype %q is not supported; use float32, bfloat16 or float16", o.DType)
	}
	var m model
	if err := readJSON(dir, "config.json", &m); err != nil {
		return nil, err
	}
	s, err := readSettings(dir)
	if err != nil {
		return nil, err
	}
	if s.Type == "" {
		s.Type = strings.Replace(s.OldType, "FeatureExtractor", "ImageProcessor", 1)
	}
	kind := strings.TrimSuffix(s.Type, "Fast")
	switch m.Type {
	case "llava":
		if kind == "CLIPImageProcessor" || kind == "LlavaImageProcessor" || kind == "" {
			return newCLIP(m, s, o)
		}
	case "qwen2_vl", "qwen2_5_vl":
		if kind == "Qwen2VLImageProcessor" || kind == "" {
			return newQwen(m, s, o)
		}
	default:
		return nil, fmt.Errorf("model_type %q is not supported; supported are llava, qwen2_vl and qwen2_5_vl", m.Type)
	}
	return nil, fmt.Errorf("image_processor_type %q of a %s model is not supported", s.Type, m.Type)
}

func readSettings(dir string) (s settings, err error) {
	var whole struct {
		Image json.RawMessage `json:"image_processor"`
	}
	const name = "processor_config.json"
	if err := readJSON(dir, name, &whole); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	if len(whole.Image) == 0 || string(whole.Image) == "null" {
		return s, readJSON(dir, "preprocessor_config.json", &s)
	}
	if err := json.Unmarshal(whole.Image, &s); err != nil {
		return s, fmt.Errorf("image_processor of %s: %w", name, err)
	}
	return s, nil
}

func readJSON(dir, name string, into any) error {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func or[T any](p *T, def T) T {
	if p == nil {
		return def
	}
	return *p
}

// sides reads a size: a map, or a number, which is that of the map's key single.
func sides(name string, raw json.RawMessage, single string, def map[string]int) (map[string]int, error) {
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || string(raw) == "null" {
		return def, nil
	}
	var n int
	m := map[string]*int{}
	if json.Unmarshal(raw, &n) == nil {
		m[single] = &n
	} else if err := json.Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("%s %s is not a map of numbers: %w", name, raw, err)
	}
	out := map[string]int{}
	for k, v := range m {
		if v != nil {
			out[k] = *v
		}
	}
	return out, nil
}

// within returns the values of the keys, which must be all that m has.
func within(name string, m map[string]int, most int, keys ...string) ([]int, error) {
	var out []int
	for _, k := range keys {
		v, ok := m[k]
		if !ok || len(m) != len(keys) {
			return nil, fmt.Errorf("%s %v is not supported; it must have %s", name, m, strings.Join(keys, " and "))
		}
		if v < 1 || v > most {
			return nil, fmt.Errorf("%s: %s is %d; it must be 1 to %d", name, k, v, most)
		}
		out = append(out, v)
	}
	return out, nil
}

// common checks what is the same for both families.
func (s settings) common() error {
	if r := or(s.Resample, bicubic); r != bicubic {
		return fmt.Errorf("resample %d is not supported, only 3 (bicubic)", r)
	}
	if or(s.Pad, false) {
		return errors.New("do_pad is not supported")
	}
	return nil
}

// pixelValues is what becomes of the 256 values of each channel.
type pixelValues struct {
	dtype serde.DType
	size  int // bytes of each
	of    [channels][256][4]byte
}

// OpenAI's CLIP, the default of both families in transformers.
var (
	clipMean = []float64{0.48145466, 0.4578275, 0.40821073}
	clipStd  = []float64{0.26862954, 0.26130258, 0.27577711}
)

// values works out the floats as torchvision does, in float32: rescaling is part
// of the mean and the deviation when there is both
// (transformers/image_processing_backends.py).
func (s settings) values(dtype serde.DType, raw bool) (*pixelValues, error) {
	rescale, normalize := or(s.Rescale, true) && !raw, or(s.Normalize, true) && !raw
	if !rescale && !normalize {
		dtype = "uint8"
	}
	v := &pixelValues{dtype: dtype, size: dtype.ItemSize()}
	mean, std, factor := s.Mean, s.Std, or(s.Factor, 1.0/255)
	if mean == nil {
		mean = clipMean
	}
	if std == nil {
		std = clipStd
	}
	if len(mean) != channels || len(std) != channels {
		return nil, fmt.Errorf("image_mean has %d values and image_std %d; both must have %d", len(mean), len(std), channels)
	}
	if factor == 0 {
		return nil, errors.New("rescale_factor is 0")
	}
	for c := range channels {
		m, d := float32(mean[c]), float32(std[c])
		if rescale && normalize {
			m, d = m*float32(1/factor), d*float32(1/factor)
		}
		if normalize && d == 0 {
			return nil, errors.New("image_std has a 0")
		}
		for i := range 256 {
			x := float32(i)
			switch {
			case normalize:
				x = float32(x-m) / d
			case rescale:
				x *= float32(factor)
			}
			v.of[c][i] = encode(x, dtype)
		}
	}
	return v, nil
}

// write writes what becomes of channel c of a line of pixels.
func (v *pixelValues) write(dst, line []byte, c int) {
	of, n := &v.of[c], len(line)/channels
	switch v.size {
	case 1:
		for i := range dst[:n] {
			dst[i] = of[line[channels*i+c]][0]
		}
	case 2:
		dst = dst[:2*n]
		for ; len(line) >= channels && len(dst) >= 2; line, dst = line[channels:], dst[2:] {
			copy(dst[:2], of[line[c]][:2])
		}
	case 4:
		dst = dst[:4*n]
		for ; len(line) >= channels && len(dst) >= 4; line, dst = line[channels:], dst[4:] {
			copy(dst[:4], of[line[c]][:])
		}
	}
}

// encode returns the bytes of a number that fits.
func encode(x float32, dtype serde.DType) (out [4]byte) {
	bits := math.Float32bits(x)
	switch dtype {
	case "uint8":
		bits = uint32(x)
	case "bfloat16":
		bits = uint32(shortfloat.ToBF16(x))
	case "float16":
		bits = uint32(shortfloat.ToF16(x))
	}
	for i := range out {
		out[i] = byte(bits >> (8 * i))
	}
	return out
}
