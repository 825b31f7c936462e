//go:build e2e

package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/engine"
	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/serde"
)

// TestBadInput: what kills or confuses an engine (wrong handles, wrong types,
// wrong rows) comes back as an error, and the engine never hears of it.
func TestBadInput(t *testing.T) {
	for _, name := range []string{"llava", "qwen2vl"} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{kind: kind{newest, name}, mode: "shm"})
			good, other := r.ref.named(t, "image1"), r.ref.named(t, "image2")
			r.right(good)
			r.right(other)
			handle := func(in *input) serde.Address {
				q, _, err := r.request(in)
				require.NoError(t, err)
				defer q.Items.Rollback()
				var a serde.Address
				require.Error(t, q.Items.Commit(r.ctx, func(b mmcache.Batch) error {
					a = *b.Items[0].Handle
					return errors.New("not sent")
				}))
				return a
			}
			right, foreign := handle(good), handle(other)
			flipped := right.Signature
			flipped[7] ^= 1
			tensor := func(d serde.DType, shape ...int) *serde.Tensor {
				x := &serde.Tensor{DType: d, Shape: shape}
				n, err := x.NBytes()
				require.NoError(t, err)
				x.Data = make([]byte, n)
				return x
			}
			pixels := func(x *serde.Tensor) *serde.Item {
				it := &serde.Item{Elems: append([]serde.Elem{}, good.Images[0].item.Elems...)}
				for i, e := range it.Elems {
					if e.Key == "pixel_values" {
						it.Elems[i].Data = x
					}
				}
				return it
			}
			rows := good.Images[0].item
			e, _ := rows.Lookup("pixel_values")
			shape := e.Data.(*serde.Tensor).Shape
			fewer := append([]int{shape[0] / 4}, shape[1:]...)
			items := map[string]*serde.Item{
				"wrong signature": serde.NewAddressItem(serde.Address{Address: right.Address, ID: right.ID,
					Signature: flipped}, "image"),
				"signature of another key": serde.NewAddressItem(serde.Address{Address: right.Address, ID: right.ID,
					Signature: foreign.Signature}, "image"),
				"another key's right handle": serde.NewAddressItem(foreign, "image"),
				"no signature": serde.NewAddressItem(serde.Address{Address: right.Address,
					ID: right.ID}, "image"),
				"stale id": serde.NewAddressItem(serde.Address{Address: right.Address, ID: 77,
					Signature: right.Signature}, "image"),
				"wrong dtype":               pixels(tensor("float16", shape...)),
				"too few rows":              pixels(tensor("uint8", fewer...)),
				"wrong dtype, too few rows": pixels(tensor("float32", fewer...)),
			}
			for what, it := range items {
				q, _, err := r.request(good)
				require.NoError(t, err)
				q.Items.Rollback()
				key := "bad " + what
				q.Items, err = r.cache.Begin(r.ctx, what, mmcache.Want{Key: key, Modality: "image"})
				require.NoError(t, err)
				_, err = q.Items.Item(r.ctx, key, mmcache.Ready(it, nil))
				require.NoError(t, err)
				r.refused(what, "item 0", q)
				r.cache.Invalidate(key)
			}
			for what, c := range map[string]struct {
				text   string
				change func(*engine.Request)
			}{
				"wrong field types": {"max_tokens", func(q *engine.Request) { q.Params["max_tokens"] = "eight" }},
				"a list of strings": {"stop_token_ids", func(q *engine.Request) {
					q.Params["stop_token_ids"] = []string{"a"}
				}},
				"out of range": {"top_p", func(q *engine.Request) { q.Params["top_p"] = 2.0 }},
				"unknown token": {"token 0 is 5000", func(q *engine.Request) {
					q.Prompt = append([]uint32{5000}, q.Prompt[1:]...)
				}},
				"wrong place":       {"stands for", func(q *engine.Request) { q.Placeholders[0].Offset++ }},
				"too short a place": {"stands for", func(q *engine.Request) { q.Placeholders[0].Length-- }},
				"too long a prompt": {"max_model_len", func(q *engine.Request) {
					q.Prompt = append(append([]uint32{}, q.Prompt...), make([]uint32, 5000)...)
				}},
			} {
				q, _, err := r.request(good)
				require.NoError(t, err)
				c.change(&q)
				r.refused(what, c.text, q)
			}

			// The segment itself: another process overwrites the secret, or the chunk.
			file := filepath.Join("/dev/shm", r.cache.(*mmcache.Shared).Name())
			for what, at := range map[string]int64{"secret overwritten": 3,
				"id overwritten": 32 + int64(right.Address), "size overwritten": 32 + int64(right.Address) + 6} {
				undo := flip(t, file, at)
				q, _, err := r.request(good)
				require.NoError(t, err)
				r.refused(what, "item 0", q)
				undo()
			}
			r.right(good)
			r.right(other)
			require.Equal(t, int64(1), r.Stats().Starts)
			require.Equal(t, int64(4), r.Stats().Requests, "nothing else was sent")
			r.drained()
			r.sound()

			_, err := r.Call(r.ctx, "no_such_method")
			var failed *engine.CallError
			require.ErrorAs(t, err, &failed)
			t.Logf("%-28s %v", "unknown utility:", err)
			require.NoError(t, r.Check(r.ctx), "which the engine complains of, but survives")
		})
	}
}

func (r *rig) refused(what, text string, q engine.Request) {
	r.t.Helper()
	_, err := r.Generate(r.ctx, q)
	require.ErrorIs(r.t, err, engine.ErrRefused, what)
	require.ErrorContains(r.t, err, text, what)
	r.t.Logf("%-28s %v", what+":", err)
	q.Items.Rollback()
}

// flip changes one byte of a file, and returns what changes it back.
func flip(t testing.TB, path string, at int64) (undo func()) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	var b [1]byte
	_, err = f.ReadAt(b[:], at)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte{b[0] ^ 0x40}, at)
	require.NoError(t, err)
	return func() {
		_, err := f.WriteAt(b[:], at)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
}
