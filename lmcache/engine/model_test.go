package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/fuzz/tiertest"
	"github.com/ringcache/ringcache/lmcache/engine"
	"github.com/ringcache/ringcache/tier"
)

// model is which prefixes of tokens have their KV stored, by the text of the tokens. It knows no keys and no
// chunks but their length.
type model struct {
	kind   kind
	stored map[string]bool
}

func prefix(tokens []int64) string { return fmt.Sprint(tokens) }

// ends returns where the chunks of a request end.
func (m *model) ends(r engine.Request) (ends []int) {
	for end := r.Skip + chunkTokens; end <= len(r.Tokens); end += chunkTokens {
		ends = append(ends, end)
	}
	if tail := len(r.Tokens) % chunkTokens; m.kind.lmcache && tail > 0 && len(r.Tokens) > r.Skip {
		ends = append(ends, len(r.Tokens))
	}
	return ends
}

// found returns up to where the KV of a request is stored.
func (m *model) found(r engine.Request) int {
	at := r.Skip
	for _, end := range m.ends(r) {
		if !m.stored[prefix(r.Tokens[:end])] {
			break
		}
		at = end
	}
	return at
}

// store notes a request, and returns how many tokens are new, and how many were there.
func (m *model) store(r engine.Request) (s engine.Stored) {
	at := r.Skip
	for _, end := range m.ends(r) {
		if text := prefix(r.Tokens[:end]); m.stored[text] {
			s.There += end - at
		} else {
			m.stored[text] = true
			s.New += end - at
		}
		at = end
	}
	return s
}

func drawRequest(t *rapid.T) engine.Request {
	tokens := rapid.SliceOfN(rapid.Int64Range(0, 1), 0, 22).Draw(t, "tokens")
	for i := range tokens[:min(len(tokens), 7)] {
		tokens[i] = 5 // so that prefixes are often equal
	}
	r := request(tokens, rapid.Int64Range(0, 31).Draw(t, "block"))
	r.Skip = chunkTokens * rapid.IntRange(0, len(tokens)/chunkTokens).Draw(t, "skip")
	return r
}

// TestModel draws calls, with memory that is lost meanwhile, and compares answers and bytes with a model.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBed(t, context.Background(), 1<<20)
		defer b.end()
		m := &model{rapid.SampledFrom(kinds).Draw(t, "kind"), map[string]bool{}}
		w := b.worker(m.kind, func(o *engine.Options) { o.Window = rapid.IntRange(1, 4).Draw(t, "window") })
		var hold *tier.StoreLease
		t.Repeat(map[string]func(*rapid.T){
			"save": func(t *rapid.T) {
				r := drawRequest(t)
				stored, err := w.save(r)
				require.NoError(t, err)
				known := m.store(r)
				require.Equal(t, known.New+known.There, stored.New+stored.There)
				require.GreaterOrEqual(t, stored.New, known.New, "what memory has lost is stored again")
			},
			"load": func(t *rapid.T) {
				r := drawRequest(t)
				w.clear(r.Slots)
				end, err := w.load(r)
				require.NoError(t, err)
				require.Equal(t, m.found(r), end)
			},
			"look up": func(t *rapid.T) {
				r := drawRequest(t)
				end, err := w.Lookup(b.ctx, r, nil)
				require.NoError(t, err)
				require.Equal(t, m.found(r), end)
			},
			"hold": func(t *rapid.T) {
				r := drawRequest(t)
				var err error
				if hold != nil {
					hold.Release()
				}
				hold, err = b.store.Lease(b.ctx, tier.LeaseOptions{ID: "hold"})
				require.NoError(t, err)
				end, err := w.Lookup(b.ctx, r, hold)
				require.NoError(t, err)
				require.Equal(t, m.found(r), end)
			},
			"abort": func(t *rapid.T) {
				if !m.kind.layered {
					t.Skip("whole chunks")
				}
				r := drawRequest(t)
				s, err := w.SaveLayers(b.ctx, r)
				require.NoError(t, err)
				for layer := range rapid.IntRange(0, layers).Draw(t, "layers") {
					w.computeLayer(r.Tokens, r.Slots, layer)
					require.NoError(t, s.Layer(layer))
				}
				s.Abort()
			},
			"break": func(t *rapid.T) {
				if !m.kind.layered {
					t.Skip("whole chunks")
				}
				load, err := w.LoadLayers(b.ctx, drawRequest(t))
				require.NoError(t, err)
				last := rapid.IntRange(0, layers-1).Draw(t, "last layer")
				for layer, err := range load.Layers(b.ctx) {
					require.NoError(t, err)
					if layer == last {
						break
					}
				}
			},
			"lose memory": func(*rapid.T) { b.evict() },
		})
		if hold != nil {
			hold.Release()
		}
	})
}

// TestModelWithoutRoom: memory has room for some chunks only, and levels fail. What is loaded is what was
// stored, and is no more than that.
func TestModelWithoutRoom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := rapid.SampledFrom(kinds).Draw(t, "kind")
		chunk := 12 * k.layout.Planes() * layers * chunkTokens
		b := newBed(t, context.Background(), int64(chunk*rapid.IntRange(1, 6).Draw(t, "chunks of room")))
		defer b.end()
		b.full = true
		m := &model{k, map[string]bool{}}
		w := b.worker(k, nil)
		failing := false
		t.Repeat(map[string]func(*rapid.T){
			"save": func(t *rapid.T) {
				r := drawRequest(t)
				stored, err := w.save(r)
				require.NoError(t, err)
				require.LessOrEqual(t, stored.New+stored.There, len(r.Tokens)-r.Skip)
				m.store(r)
			},
			"load": func(t *rapid.T) {
				r := drawRequest(t)
				w.clear(r.Slots)
				end, err := w.load(r) // compares bytes
				if err != nil {
					require.True(t, k.layered && errors.Is(err, engine.ErrLost), err)
				}
				require.LessOrEqual(t, end, m.found(r))
			},
			"fail": func(*rapid.T) {
				if failing = !failing; failing {
					b.fault.Do(func(c tiertest.Call) tiertest.Answer {
						if c.N%3 == 0 {
							return tiertest.Answer{Err: tier.ErrFull}
						}
						return tiertest.Answer{}
					})
				} else {
					b.fault.Do(nil)
				}
			},
		})
		b.fault.Do(nil)
	})
}

// TestManyGoroutines: one engine, with requests that share a prefix, each in its own slots.
func TestManyGoroutines(t *testing.T) {
	for _, k := range []kind{kinds[0], kinds[5]} {
		b := newBed(t, t.Context(), 1<<20)
		w := b.worker(k, nil)
		var group sync.WaitGroup
		for i := range int64(4) {
			group.Go(func() {
				tokens := append(upTo(4), i%2, 1, 2, 3)
				blocks := []int64{i * 8, i*8 + 1, i*8 + 2, i*8 + 3}
				for range 20 {
					r := request(tokens, 0)
					for j := range r.Slots {
						r.Slots[j] = blocks[j/2]*2 + int64(j%2)
					}
					_, err := w.save(r)
					if err != nil {
						t.Error(err)
					}
					end, err := w.load(r)
					if err != nil && !errors.Is(err, engine.ErrLost) || end%chunkTokens != 0 {
						t.Error(end, err)
					}
				}
			})
		}
		group.Wait()
		b.end()
	}
}
