// Command blend tries package blend on a task that two tiny models were trained on, or on text with a real
// language model, and writes the tables and the figures that docs/blend.md shows. It measures no times: those
// are the benchmarks of packages blend and blend/rope.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ringcache/ringcache/bench/internal/chart"
	"github.com/ringcache/ringcache/blend/transformer"
	"github.com/ringcache/ringcache/internal/retrieval"
)

var (
	ratios = []float64{0, 0.05, 0.15, 0.3, 0.5, 1}
	models = []string{"early", "late"}
)

func main() {
	prompts := flag.Int("prompts", 200, "number of prompts")
	seed := flag.Uint64("seed", 1, "seed of the prompts")
	plots := flag.String("plots", "", "folder for the figures")
	at := flag.String("models", filepath.Join("..", "blend", "testdata"), "folder with retrieval-*.safetensors")
	folder := flag.String("text", "", "folder of smollm.py: a real language model in place of the tiny ones")
	flag.Parse()
	if *folder != "" {
		if err := text(*folder, *plots, *prompts, *seed); err != nil {
			fmt.Fprintln(os.Stderr, "blend:", err)
			os.Exit(1)
		}
		return
	}
	for _, name := range models {
		if err := run(name, *at, *plots, *prompts, *seed); err != nil {
			fmt.Fprintln(os.Stderr, "blend:", err)
			os.Exit(1)
		}
	}
}

func run(name, at, plots string, prompts int, seed uint64) error {
	file := filepath.Join(at, "retrieval-"+name)
	model, err := load(file+".json", file+".safetensors")
	if err != nil {
		return err
	}
	labels, ways := list(model.Dims().Layers)
	out, err := retrieval.Try(model, ways, prompts, seed)
	if err != nil {
		return err
	}
	answers := chart.Chart{
		Title: "model " + name + ": answers that need another document",
		X:     "% of the documents' tokens computed again",
		Y:     "% right", XText: percent,
	}
	errorsOf := chart.Chart{
		Title: "model " + name + ": error of the last layer's KV", X: answers.X, Y: "relative error", XText: percent,
	}
	fmt.Printf("\nmodel %s, %d layers, %d prompts, seed %d\n\n", name, model.Dims().Layers, prompts, seed)
	fmt.Println("| way | computed again | right, subject named | right, subject in another document " +
		"| KV error by layer | divergence (nats) |")
	fmt.Println("|---|---|---|---|---|---|")
	for i, o := range out {
		fmt.Printf("| %s | %.0f %% | %d of %d | %d of %d |",
			labels[i], 100*ways[i].Ratio, o.Named, o.AskedNamed, o.Pronoun, o.AskedPronoun)
		for _, e := range o.KVError {
			fmt.Printf(" %.2f", e)
		}
		fmt.Printf(" | %.2f |\n", o.Divergence)
		x := max(100*ways[i].Ratio, nothing)
		answers.Add(labels[i], x, max(100*float64(o.Pronoun)/float64(o.AskedPronoun), least))
		errorsOf.Add(labels[i], x, max(o.KVError[len(o.KVError)-1], least))
	}
	if plots == "" {
		return nil
	}
	return errors.Join(
		os.WriteFile(filepath.Join(plots, "blend-answers-"+name+".svg"), answers.SVG(), 0o644),
		os.WriteFile(filepath.Join(plots, "blend-error-"+name+".svg"), errorsOf.SVG(), 0o644),
	)
}

func load(config, weights string) (*transformer.Model, error) {
	c, err := os.ReadFile(config)
	if err != nil {
		return nil, err
	}
	w, err := os.ReadFile(weights)
	if err != nil {
		return nil, err
	}
	return transformer.Load(c, w)
}

// The axis of a chart is logarithmic, and has no place for 0 %: it stands at half of the least ratio. A point
// at 0 of the other axis is drawn as if it was just above.
const nothing, least = 2.5, 1e-9

func percent(x float64) string {
	if x == nothing {
		return "0"
	}
	return fmt.Sprintf("%g", x)
}

// list returns the ways that are compared: tokens that deviate most, and tokens by chance, at each check
// layer.
func list(layers int) (labels []string, ways []retrieval.Way) {
	for layer := 1; layer < layers; layer++ {
		for _, random := range []bool{false, true} {
			label := fmt.Sprintf("selected at layer %d", layer)
			if random {
				label = fmt.Sprintf("random at layer %d", layer)
			}
			for _, ratio := range ratios {
				labels = append(labels, label)
				ways = append(ways, retrieval.Way{Ratio: ratio, Layer: layer, Random: random})
			}
		}
	}
	return labels, ways
}
