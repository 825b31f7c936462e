//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
)

// environment is what setup.sh prints, by name.
var environment = sync.OnceValues(func() (map[string]string, error) { return printed("./setup.sh") })

// printed is what a script prints as NAME=VALUE, one a line.
func printed(script string) (map[string]string, error) {
	cmd := exec.Command(script)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", script, err)
	}
	found := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			found[k] = v
		}
	}
	return found, nil
}

// kind is an engine of one version with one model.
type kind struct{ version, model string }

const newest = "0.32.0" // that there are wheels of for CPUs

func (k kind) generation(t testing.TB) *pycompat.Generation {
	g, err := pycompat.Lookup(k.version)
	require.NoError(t, err)
	return g
}

// command is a Python program of this folder, run by the version's vLLM.
func (k kind) command(t testing.TB, script string, args ...string) *exec.Cmd {
	env, err := environment()
	require.NoError(t, err)
	cmd := exec.Command(env["python"], append([]string{script, "--model", env["model_"+k.model]}, args...)...)
	cmd.Env = os.Environ()
	if k.version != newest {
		path, ok := env["release_"+k.version]
		require.True(t, ok, "setup.sh has no release %s", k.version)
		cmd.Env = append(cmd.Env, "PYTHONPATH="+path)
	}
	return cmd
}

// reference is what vLLM's own frontend made of the inputs.
type reference struct {
	dir    string
	Inputs []input
}

type input struct {
	Name   string
	Prompt []uint32 `json:"prompt_token_ids"`
	Params map[string]any
	Tokens []uint32  `json:"token_ids"`
	Finish string    `json:"finish_reason"`
	Images []feature `json:"features"`
}

type feature struct {
	Modality string
	Key      string `json:"identifier"`
	Offset   int
	Length   int
	IsEmbed  []bool `json:"is_embed"`
	Elems    map[string]elem
	item     *serde.Item
}

type elem struct {
	DType     serde.DType
	Shape     []int
	File      string
	Field     string
	KeepOnCPU bool `json:"keep_on_cpu"`
	Slices    json.RawMessage
	Dim       int
	BatchSize int `json:"batch_size"`
}

// distinct is the number of different images among the inputs.
const distinct = 200

var references sync.Map // of func() (*reference, error), by kind

// referenceOf has vLLM's own frontend answer the inputs, once for each kind.
func referenceOf(t testing.TB, k kind) *reference {
	t.Helper()
	f, _ := references.LoadOrStore(k, sync.OnceValues(func() (*reference, error) {
		dir, err := os.MkdirTemp(work, "reference-")
		if err != nil {
			return nil, err
		}
		b, err := json.Marshal(inputs(k.model))
		if err != nil {
			return nil, err
		}
		file := filepath.Join(dir, "inputs.json")
		if err := os.WriteFile(file, b, 0o600); err != nil {
			return nil, err
		}
		if out, err := k.command(t, "reference.py", "--inputs", file, "--out", dir).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("reference.py: %w\n%s", err, out)
		}
		r := &reference{dir: dir}
		if b, err = os.ReadFile(filepath.Join(dir, "reference.json")); err != nil {
			return nil, err
		}
		return r, json.Unmarshal(b, r)
	}))
	r, err := f.(func() (*reference, error))()
	require.NoError(t, err)
	for i := range r.Inputs {
		for j := range r.Inputs[i].Images {
			r.load(t, &r.Inputs[i].Images[j])
		}
	}
	return r
}

type question struct {
	Name   string         `json:"name"`
	Prompt []uint32       `json:"prompt_token_ids"`
	Images []any          `json:"images,omitempty"`
	Params map[string]any `json:"params,omitempty"`
}

// inputs are texts, many small images, photos, and prompts of several images.
func inputs(model string) (out []question) {
	image := map[string][]uint32{"llava": {4}, "qwen2vl": {5, 4, 6}}[model]
	prompt := func(seed, images int) []uint32 {
		p := []uint32{1}
		for i := range images {
			p = append(append(p, uint32(20+(seed+i)%200)), image...)
		}
		return append(p, uint32(30+seed%200), uint32(31+seed%190))
	}
	for i := range 16 {
		out = append(out, question{Name: fmt.Sprint("text", i),
			Prompt: append(prompt(i*7, 0), uint32(60+i), uint32(90+2*i))})
	}
	pattern := func(k int) any { return map[string]any{"pattern": k, "size": []int{56, 56}} }
	for k := range distinct {
		out = append(out, question{Name: fmt.Sprint("image", k), Prompt: prompt(k, 1), Images: []any{pattern(k)}})
	}
	for i := range 12 {
		out = append(out, question{Name: fmt.Sprint("two", i), Prompt: prompt(i, 2),
			Images: []any{pattern(i), pattern((i * 5) % 16)}})
	}
	// The text of one and the image of another: what image0 would be answered if image1's data stood in its
	// place.
	out = append(out, question{Name: "swapped", Prompt: prompt(0, 1), Images: []any{pattern(1)}})
	for _, p := range photos() {
		out = append(out, question{Name: filepath.Base(p), Prompt: prompt(len(p), 1), Images: []any{p}})
	}
	return out
}

func photos() (out []string) {
	for _, glob := range []string{"*.jpg", "*.png"} {
		m, _ := filepath.Glob(filepath.Join("..", "..", "examples", "media", glob))
		for _, p := range m {
			if abs, err := filepath.Abs(p); err == nil {
				out = append(out, abs)
			}
		}
	}
	return out
}

// load reads the tensors that the reference's frontend made of an image.
func (r *reference) load(t testing.TB, f *feature) {
	if f.item != nil {
		return
	}
	f.item = &serde.Item{Modality: f.Modality}
	for key, e := range f.Elems {
		b, err := os.ReadFile(filepath.Join(r.dir, e.File))
		require.NoError(t, err)
		s := serde.Elem{Key: key, Data: &serde.Tensor{DType: e.DType, Shape: e.Shape, Data: b}}
		switch e.Field {
		case "batched":
		case "flat":
			var slices [][][3]*int64
			require.NoError(t, json.Unmarshal(e.Slices, &slices))
			require.Len(t, slices, 1)
			require.Len(t, slices[0], 1)
			s.Field = serde.Field{Kind: serde.Flat, Dim: e.Dim, Nested: true,
				Slices: [][]serde.Slice{{serde.Range(*slices[0][0][0], *slices[0][0][1])}}}
		default:
			require.Fail(t, "no field "+e.Field)
		}
		s.Field.KeepOnCPU = e.KeepOnCPU
		f.item.Elems = append(f.item.Elems, s)
	}
}

// named returns an input by its name.
func (r *reference) named(t testing.TB, name string) *input {
	for i := range r.Inputs {
		if r.Inputs[i].Name == name {
			return &r.Inputs[i]
		}
	}
	require.Fail(t, "no input "+name)
	return nil
}

func (f *feature) want() mmcache.Want {
	return mmcache.Want{Key: f.Key, Bytes: 1 << 20, Modality: f.Modality}
}
