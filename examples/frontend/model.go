package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ringcache/ringcache/engine"
	"github.com/ringcache/ringcache/preprocess"
)

// vision is what is known of the model: how its images are made, and what a
// request for it may look like.
type vision struct {
	preprocess.Processor
	name        string
	placeholder uint32   // the prompt has one for each image
	prompt      []uint32 // what the model was trained to see around it
	model       engine.Model
}

func openModel(dir string, o preprocess.Options) (*vision, error) {
	p, err := preprocess.Open(dir, o)
	if err != nil {
		return nil, err
	}
	b, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		return nil, err
	}
	var c struct {
		VocabSize  int     `json:"vocab_size"`
		ImageToken *uint32 `json:"image_token_id"`
		ImageIndex *uint32 `json:"image_token_index"` // the older name
		Start      *uint32 `json:"vision_start_token_id"`
		End        *uint32 `json:"vision_end_token_id"`
		Text       struct {
			VocabSize int `json:"vocab_size"`
		} `json:"text_config"`
	}
	if err := json.Unmarshal(b, &c); err != nil {
		return nil, fmt.Errorf("%s/config.json: %w", dir, err)
	}
	if c.ImageToken == nil {
		c.ImageToken = c.ImageIndex
	}
	if c.ImageToken == nil {
		return nil, fmt.Errorf("%s/config.json has neither image_token_id nor image_token_index", dir)
	}
	vocabulary := max(c.VocabSize, c.Text.VocabSize)
	if vocabulary < 1 {
		return nil, fmt.Errorf("%s/config.json has no vocab_size", dir)
	}
	v := &vision{Processor: p, name: dir, placeholder: *c.ImageToken, prompt: []uint32{*c.ImageToken}}
	if c.Start != nil && c.End != nil {
		v.prompt = []uint32{*c.Start, v.placeholder, *c.End}
	}
	image, err := preprocess.Modality(p)
	if err != nil {
		return nil, err
	}
	image.Placeholder = &v.placeholder
	v.model = engine.Model{VocabSize: vocabulary, Modalities: map[string]engine.Modality{"image": image}}
	return v, nil
}

// expand puts as many placeholders into a prompt as each image takes, where it has
// one for the image.
func (v *vision) expand(prompt []uint32, tokens []int) ([]uint32, []engine.Placeholder, error) {
	out := make([]uint32, 0, len(prompt))
	var at []engine.Placeholder
	for _, t := range prompt {
		if t != v.placeholder {
			out = append(out, t)
			continue
		}
		if len(at) < len(tokens) {
			n := tokens[len(at)]
			for range n {
				out = append(out, t)
			}
			at = append(at, engine.Placeholder{Offset: len(out) - n, Length: n})
			continue
		}
		return nil, nil, fmt.Errorf("the prompt has more image tokens (%d) than there are images, %d", t, len(tokens))
	}
	if len(at) < len(tokens) {
		return nil, nil, fmt.Errorf("the prompt has %d image tokens (%d) for %d images", len(at), v.placeholder, len(tokens))
	}
	return out, at, nil
}
