package encoder

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"testing"

	"github.com/ringcache/ringcache/internal/torchdtype"
)

// FuzzIdentifier: every identifier that vLLM makes by counting is refused, whatever request, LoRA or
// modality is in it, and no hash of content is.
func FuzzIdentifier(f *testing.F) {
	f.Add("renderer0-mm-1-image-0", uint(1), uint(0))
	f.Add("a:b", uint(12), uint(3))
	f.Add("", uint(0), uint(0))
	f.Add("\n-image-", uint(9), uint(1<<40))
	hash := regexp.MustCompile(`^[0-9a-f]+$`)
	f.Fuzz(func(t *testing.T, text string, n, i uint) {
		err := CheckIdentifier(text)
		switch {
		case err != nil && !errors.Is(err, ErrCounter) && !errors.Is(err, fs.ErrInvalid):
			t.Fatalf("%q: %v", text, err)
		case err != nil && (hash.MatchString(text) || len(err.Error()) > 1500):
			t.Fatalf("%q: %v", text, err)
		}
		for _, modality := range []string{"image", "video", "audio", "vision_chunk"} {
			for _, counter := range []string{
				fmt.Sprintf("%s-%s-%d", text, modality, i),
				fmt.Sprintf("renderer%d-mm-%d-%s-%d", n, i, modality, i),
				fmt.Sprintf("renderer-mm-%d-%s-%d", n, modality, i),
				Identifier(text, fmt.Sprintf("renderer%d-mm-%d-%s-%d", n, i, modality, i)),
				Identifier("l", fmt.Sprintf("renderer%d-mm-%d-%s-%d", n, i, text+"m", i)),
				Identifier(text, fmt.Sprintf("%d-%s-%d", n, modality, i)),
			} {
				if !errors.Is(CheckIdentifier(counter), ErrCounter) {
					t.Fatalf("%q is not refused", counter)
				}
			}
		}
		for _, name := range []string{"bfloat16", text} {
			key, err := LMCacheKey(text, name, text)
			if (err == nil) != (!strings.Contains(text, "@") && torchdtype.Find(name) != nil) || err == nil && strings.Count(key, "@") != 4 {
				t.Fatalf("%q: %q, %v", text, key, err)
			}
		}
	})
}

// FuzzFingerprint: a space is short and plain, and two fingerprints have one only if they are equal.
func FuzzFingerprint(f *testing.F) {
	f.Add("Qwen/Qwen2-VL", "rev", "bfloat16", "", "0.33.0", 0, 0, "Qwen/Qwen2-VL", "re", "vbfloat16")
	f.Add("m", "", "bool", "\x00", "é", 4, 3, "", "", "")
	plain := regexp.MustCompile(`^[0-9A-Za-z][-._0-9A-Za-z]{32,253}$`)
	f.Fuzz(func(t *testing.T, model, revision, dtype, layout, engine string, ranks, rank int, model2, revision2, dtype2 string) {
		a := Fingerprint{model, revision, dtype, layout, engine, ranks, rank}
		space, err := a.Space()
		if (err == nil) != (a.Validate() == nil) {
			t.Fatalf("%+v: %v", a, err)
		}
		if err != nil {
			if space != "" || !errors.Is(err, fs.ErrInvalid) {
				t.Fatalf("%+v: %q, %v", a, space, err)
			}
			return
		}
		if !plain.MatchString(space) {
			t.Fatalf("%+v: %q", a, space)
		}
		for _, b := range []Fingerprint{
			a,
			{model2, revision, dtype, layout, engine, ranks, rank},
			{model, revision2, dtype2, layout, engine, ranks, rank},
			{model, layout, dtype, revision, engine, ranks, rank},
			{model, revision + layout, dtype, "", engine, ranks, rank},
		} {
			if again, err := b.Space(); err == nil && (again == space) != (a == b) {
				t.Fatalf("%+v and %+v: %q and %q", a, b, space, again)
			}
		}
	})
}
