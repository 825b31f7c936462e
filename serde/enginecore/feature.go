package serde

import "fmt"

// Feature is vLLM's MultiModalFeatureSpec: one multimodal input of a request
// and its place in the prompt (vllm/multimodal/inputs.py, all releases).
type Feature struct {
	Data       *Item // nil for None
	Modality   string
	Identifier string
	// Offset and Length are the placeholder range in tokens.
	Offset, Length int
	// IsEmbed, a bool tensor or nil, says which tokens of the range take
	// embeddings.
	IsEmbed *Tensor
	// MMHash is nil for None. Generations without FeatureHash have no such
	// field; it is not written for them.
	MMHash *string
}

// EncodeFeature returns the frames of one feature. The aux frames alias the
// Data of its tensors, which all must have some. The error wraps [ErrInvalid].
func EncodeFeature(f *Feature, o Options) (Frames, error) {
	e := newEncoder(o)
	e.feature(f)
	return e.filled()
}

// EncodeFeatures returns the frames of a list of features, as it is the
// mm_features field of a request. Like EncodeFeature otherwise.
func EncodeFeatures(fs []Feature, o Options) (Frames, error) {
	e := newEncoder(o)
	e.features(fs)
	return e.filled()
}

// DecodeFeature reads one feature, whose tensors are views of f. The error
// wraps [ErrCorrupt] or [ErrUnsupported].
func DecodeFeature(f Frames, o Options) (*Feature, error) {
	return decodeWhole(f, o, func(d *decoder) (*Feature, error) {
		v, err := d.feature()
		return &v, err
	})
}

// DecodeFeatures reads a list of features; like DecodeFeature otherwise.
func DecodeFeatures(f Frames, o Options) ([]Feature, error) {
	return decodeWhole(f, o, (*decoder).features)
}

// filled is frames for callers that have no use for layouts.
func (e *encoder) filled() (Frames, error) {
	for i := range e.places {
		if p := &e.places[i]; p.hole {
			return nil, &InvalidError{fmt.Sprintf("tensor of elem %q", p.Key), "it has no Data; only NewPlan takes layouts"}
		}
	}
	return e.frames()
}

func (e *encoder) features(fs []Feature) {
	e.array(len(fs))
	for i := range fs {
		e.feature(&fs[i])
	}
}

func (e *encoder) feature(f *Feature) {
	if f == nil {
		e.invalid("feature", "it is a nil *Feature")
		return
	}
	if f.Offset < 0 || f.Length < 0 {
		e.invalid("feature", "its range is %d+%d", f.Offset, f.Length)
		return
	}
	if f.IsEmbed != nil && f.IsEmbed.DType != DTypeBool {
		e.invalid("feature", "IsEmbed is a tensor of %s, must be bool", f.IsEmbed.DType)
		return
	}
	n := 4
	if e.gen.FeatureHash {
		n++
	}
	e.mapLen(n)
	e.str("data")
	if f.Data == nil {
		e.null()
	} else {
		e.item(f.Data, f.Modality)
	}
	e.str("modality")
	e.str(f.Modality)
	e.str("identifier")
	e.str(f.Identifier)
	e.str("mm_position")
	e.mapLen(3)
	e.str("offset")
	e.integer(int64(f.Offset))
	e.str("length")
	e.integer(int64(f.Length))
	e.str("is_embed")
	if f.IsEmbed == nil {
		e.null()
	} else {
		e.tensor(f.IsEmbed)
	}
	if !e.gen.FeatureHash {
		return
	}
	e.str("mm_hash")
	if f.MMHash == nil {
		e.null()
	} else {
		e.str(*f.MMHash)
	}
}

func (d *decoder) features() ([]Feature, error) {
	n, err := d.array("features")
	if err != nil {
		return nil, err
	}
	out := make([]Feature, 0, small(n))
	for range n {
		f, err := d.feature()
		if err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}

// object reads a map that Python decodes into a dataclass: unknown names are
// passed over, as msgspec does, and the required ones must be there. read
// handles one name and says whether it knows it.
func (d *decoder) object(what string, required []string, read func(name string) (known bool, err error)) error {
	n, err := d.mapLen(what)
	if err != nil {
		return err
	}
	seen := make(map[string]bool, small(n))
	for range n {
		name, err := d.text(what)
		if err != nil {
			return err
		}
		if seen[name] {
			return d.corrupt(what, "each key once", fmt.Sprintf("%.64q twice", name))
		}
		seen[name] = true
		known, err := read(name)
		if err == nil && !known {
			err = d.skip(what)
		}
		if err != nil {
			return err
		}
	}
	for _, name := range required {
		if !seen[name] {
			return d.corrupt(what, fmt.Sprintf("the key %q", name), "none")
		}
	}
	return nil
}

var (
	featureKeys  = []string{"data", "modality", "identifier", "mm_position"}
	positionKeys = []string{"offset", "length"}
)

func (d *decoder) feature() (f Feature, err error) {
	err = d.object("feature", featureKeys, func(name string) (bool, error) {
		var err error
		switch name {
		case "data":
			if !d.null() {
				f.Data, err = d.item()
			}
		case "modality":
			f.Modality, err = d.text(name)
		case "identifier":
			f.Identifier, err = d.text(name)
		case "mm_position":
			err = d.object(name, positionKeys, func(name string) (bool, error) { return d.position(&f, name) })
		case "mm_hash":
			if !d.null() {
				var s string
				s, err = d.text(name)
				f.MMHash = &s
			}
		default:
			return false, nil
		}
		return true, err
	})
	return f, err
}

func (d *decoder) position(f *Feature, name string) (known bool, err error) {
	switch name {
	case "offset":
		f.Offset, err = d.int(name, 0)
	case "length":
		f.Length, err = d.int(name, 0)
	case "is_embed":
		if d.null() {
			return true, nil
		}
		if f.IsEmbed, err = d.tensor(); err == nil && f.IsEmbed.DType != DTypeBool {
			err = d.corrupt(name, "a bool tensor", "one of "+string(f.IsEmbed.DType))
		}
	default:
		return false, nil
	}
	return true, err
}
