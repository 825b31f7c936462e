//go:build e2e

package e2e

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/engine"
	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/preprocess"
)

// requirements are what requests are checked against.
func (k kind) requirements(t testing.TB) engine.Model {
	env, err := environment()
	require.NoError(t, err)
	p, err := preprocess.Open(env["model_"+k.model], preprocess.Options{})
	require.NoError(t, err)
	image, err := preprocess.Modality(p)
	require.NoError(t, err)
	token := uint32(4)
	image.Placeholder = &token
	return engine.Model{VocabSize: 256, Modalities: map[string]engine.Modality{"image": image}}
}

var itemIDs atomic.Int64 // no two open requests of a cache have one id

// request is the engine's request for an input; made counts items that were not
// cached.
func (r *rig) request(in *input) (q engine.Request, made int, err error) {
	q = engine.Request{ID: in.Name, Prompt: in.Prompt, Params: map[string]any{}}
	for k, v := range in.Params {
		if f, ok := v.(float64); ok && f == float64(int(f)) && k != "temperature" {
			v = int(f) // JSON does not tell
		}
		q.Params[k] = v
	}
	if len(in.Images) == 0 {
		return q, 0, nil
	}
	var wants []mmcache.Want
	for i := range in.Images {
		f := &in.Images[i]
		wants = append(wants, f.want())
		q.Placeholders = append(q.Placeholders,
			engine.Placeholder{Offset: f.Offset, Length: f.Length, IsEmbed: f.IsEmbed})
	}
	if q.Items, err = r.cache.Begin(r.ctx, fmt.Sprint(in.Name, "-", itemIDs.Add(1)), wants...); err != nil {
		return q, 0, err
	}
	for i := range in.Images {
		f := &in.Images[i]
		it, err := q.Items.Item(r.ctx, f.Key, mmcache.Ready(f.item, nil))
		if err != nil {
			q.Items.Rollback()
			return q, 0, err
		}
		if !it.Hit {
			made++
		}
	}
	return q, made, nil
}

// ask sends an input and returns the tokens.
func (r *rig) ask(in *input) (tokens []uint32, made int, err error) {
	q, made, err := r.request(in)
	if err != nil {
		return nil, 0, err
	}
	s, err := r.Generate(r.ctx, q)
	if err != nil {
		q.Items.Rollback()
		return nil, made, err
	}
	all, err := s.Collect()
	return all[0], made, err
}

// right asks and compares.
func (r *rig) right(in *input) (made int) {
	r.t.Helper()
	got, made, err := r.ask(in)
	require.NoError(r.t, err, in.Name)
	require.Equal(r.t, in.Tokens, got, in.Name)
	return made
}

// everything asks for each input, several at a time.
func (r *rig) everything(clients int, ins []*input) (made int) {
	r.t.Helper()
	var wait sync.WaitGroup
	var mu sync.Mutex
	next, wrong := 0, 0
	for range clients {
		wait.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= len(ins) {
					return
				}
				got, n, err := r.ask(ins[i])
				mu.Lock()
				made += n
				if err != nil || fmt.Sprint(got) != fmt.Sprint(ins[i].Tokens) {
					if wrong++; wrong <= 5 {
						r.t.Errorf("%s: got %v, want %v, error %v", ins[i].Name, got, ins[i].Tokens, err)
					}
				}
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	if wrong > 0 { // everything may have a goroutine of its own
		r.t.Errorf("%d wrong answers of %d", wrong, len(ins))
	}
	return made
}

func (r *reference) all() (out []*input) {
	for i := range r.Inputs {
		out = append(out, &r.Inputs[i])
	}
	return out
}
