package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/ringcache/ringcache/bench/internal/chart"
	"github.com/ringcache/ringcache/blend"
	"github.com/ringcache/ringcache/internal/retrieval"
)

// text compares ways of computing prompts of a real language model, which smollm.py makes.
func text(folder, plots string, prompts int, seed uint64) error {
	model, err := load(filepath.Join(folder, "config.json"), filepath.Join(folder, "model.safetensors"))
	if err != nil {
		return err
	}
	file, err := os.ReadFile(filepath.Join(folder, "prompts.json"))
	if err != nil {
		return err
	}
	var all []struct {
		Tokens    []int64
		Documents []int // lengths
		Query     int
	}
	if err := json.Unmarshal(file, &all); err != nil {
		return err
	}
	ways := []retrieval.Way{{}}
	labels := []string{"concatenation"}
	for _, ratio := range []float64{0.15, 0.3} {
		ways = append(ways, retrieval.Way{Ratio: ratio, Layer: 1}, retrieval.Way{Ratio: ratio, Layer: 1, Random: true})
		labels = append(labels, fmt.Sprintf("selected %g %%", 100*ratio), fmt.Sprintf("random %g %%", 100*ratio))
	}
	layers := model.Dims().Layers
	chance := rand.New(rand.NewPCG(seed, 2))
	sums := make([]sum, len(ways))
	all = all[:min(prompts, len(all))]
	for number, one := range all {
		p := retrieval.Prompt{Tokens: one.Tokens, Query: one.Query}
		at := 0
		for _, n := range one.Documents {
			p.Cover = append(p.Cover, blend.Match{Start: at, End: at + n})
			at += n
		}
		begin := time.Now()
		compared, err := retrieval.Compare(model, p, ways, chance)
		if err != nil {
			return err
		}
		for i, c := range compared {
			sums[i].add(c, layers)
		}
		fmt.Fprintf(os.Stderr, "prompt %d of %d: %.0f s\n", number+1, len(all), time.Since(begin).Seconds())
	}
	fmt.Printf("\n%d layers, %d prompts, %.0f tokens of queries, seed %d\n\n", layers, len(all), sums[0].tokens, seed)
	fmt.Println("| way | KV error, layer 1 | middle | last | mean | divergence (nats) | same next token " +
		"| prompts with less error than by chance |")
	fmt.Println("|---|---|---|---|---|---|---|---|")
	figure := chart.Chart{
		Title: "SmolLM2-135M: error of KV, layer by layer", X: "layer", Y: "relative error",
		XText: func(x float64) string { return fmt.Sprintf("%g", x) },
	}
	n := float64(len(all))
	for i, s := range sums {
		less := "-"
		if i > 0 && !ways[i].Random {
			better := 0
			for j := range s.means {
				if s.means[j] < sums[i+1].means[j] {
					better++
				}
			}
			less = fmt.Sprintf("%d of %d", better, len(all))
		}
		mean := 0.0
		for layer, e := range s.errors {
			mean += e / n / float64(layers)
			figure.Add(labels[i], float64(layer), e/n)
		}
		fmt.Printf("| %s | %.3f | %.3f | %.3f | %.3f | %.3f | %.0f %% | %s |\n", labels[i], s.errors[1]/n,
			s.errors[layers/2]/n, s.errors[layers-1]/n, mean, s.divergence/s.tokens, 100*s.same/s.tokens, less)
	}
	if plots == "" {
		return nil
	}
	return os.WriteFile(filepath.Join(plots, "blend-text.svg"), figure.SVG(), 0o644)
}

// sum is of all prompts.
type sum struct {
	errors     []float64 // of KV, by layer
	means      []float64 // of all layers, by prompt
	divergence float64   // of the query's tokens, as same
	same       float64   // tokens behind which the most likely one is that of a whole prefill
	tokens     float64
}

func (s *sum) add(c retrieval.Comparison, layers int) {
	if s.errors == nil {
		s.errors = make([]float64, layers)
	}
	mean := 0.0
	for layer, e := range c.KVError {
		s.errors[layer] += e
		mean += e / float64(layers)
	}
	s.means = append(s.means, mean)
	for i, got := range c.Got {
		s.divergence += retrieval.Divergence(c.Want[i], got)
		if retrieval.Largest(got) == retrieval.Largest(c.Want[i]) {
			s.same++
		}
		s.tokens++
	}
}
