package main

import (
	"fmt"
	"math/rand/v2"

	"github.com/ringcache/ringcache/bench/internal/policy"
)

const mib = 1 << 20

// An item is an image or video as the processor leaves it, with the milliseconds to make it.
// Making an item is decoding and preprocessing, which is by the pixel, and a
// fixed part. These are assumptions, about one core's work.
const (
	fixedCost  = 3.0 // ms
	costPerMiB = 8.0 // ms per MiB of uint8 pixels
)

// kind is one size of a family, with how often it is met among its items.
type kind struct {
	name   string
	mib    float64 // of uint8 pixels; twice that as bfloat16, four times as float32
	weight int
	video  bool
}

// family is a model's preprocessor.
type family struct {
	name  string
	kinds []kind
}

// Sizes are of pixel_values; the weights are assumptions.
var families = []family{
	{"Qwen2.5-VL", []kind{
		{"336²", 0.6, 15, false}, {"640×480", 1.8, 25, false}, {"1280×720", 5.4, 25, false}, {"1024²", 6.1, 20, false},
		{"2048²", 23.9, 8, false}, {"A4", 25.8, 5, false}, {"3072²", 54, 2, false}, {"64×448²", 37, 6, true},
		{"32×720p", 86, 3, true},
	}},
	{"Qwen3-VL", []kind{{"1024²", 6, 70, false}, {"2048²", 24, 25, false}, {"3072²", 54, 5, false}}},
	{"Gemma 3", []kind{{"896²", 2.3, 75, false}, {"4 crops", 11.5, 25, false}}},
	{"LLaVA", []kind{{"336²", 0.32, 50, false}, {"NeXT, 5 tiles", 1.6, 50, false}}},
	{"InternVL", []kind{{"1 tile", 0.57, 40, false}, {"13 tiles", 7.5, 60, false}}},
	{"Llama 4", []kind{{"17 tiles", 5.5, 1, false}}},
	{"Mistral", []kind{{"1024²", 3, 50, false}, {"1540²", 6.8, 50, false}}},
	{"SmolVLM", []kind{{"17×512²", 12.8, 1, false}}},
	{"Whisper", []kind{{"30 s", 0.37, 1, true}}},
}

// deployment draws items of the families it serves.
type deployment struct {
	families []family
	dtype    int // bytes per element
	rng      *rand.Rand
	made     int32
}

var dtypes = map[int]string{1: "u8", 2: "bf16", 4: "fp32"}

// deploy is one family, or with many all of them behind one cache.
func deploy(rng *rand.Rand, many bool) *deployment {
	d := &deployment{rng: rng, families: families, dtype: 1 << rng.IntN(3)}
	if !many {
		i := rng.IntN(len(families) - 1) // audio alone has one small size
		d.families = families[i : i+1]
	}
	return d
}

func (d *deployment) String() string {
	name := "all families"
	if len(d.families) == 1 {
		name = d.families[0].name
	}
	return fmt.Sprintf("%s, %s", name, dtypes[d.dtype])
}

// item draws one; only restricts it to kinds that pass, if any does.
func (d *deployment) item(only func(kind) bool) *policy.Item {
	kinds := d.families[d.rng.IntN(len(d.families))].kinds
	var pass []kind
	sum := 0
	for _, k := range kinds {
		if only == nil || only(k) {
			pass = append(pass, k)
			sum += k.weight
		}
	}
	if len(pass) == 0 {
		return d.item(nil)
	}
	n := d.rng.IntN(sum)
	i := 0
	for ; n >= pass[i].weight; i++ {
		n -= pass[i].weight
	}
	it := &policy.Item{
		ID:   d.made,
		Key:  fmt.Sprintf("item-%08d", d.made),
		Size: int64(pass[i].mib * mib * float64(d.dtype)),
		Cost: fixedCost + costPerMiB*pass[i].mib,
	}
	d.made++
	return it
}

func image(k kind) bool { return !k.video }
func video(k kind) bool { return k.video }

// meanSize is of many draws.
func (d *deployment) meanSize(only func(kind) bool) float64 {
	const draws = 2000
	probe := &deployment{families: d.families, dtype: d.dtype, rng: rand.New(rand.NewPCG(1, 1))}
	var sum float64
	for range draws {
		sum += float64(probe.item(only).Size)
	}
	return sum / draws
}
