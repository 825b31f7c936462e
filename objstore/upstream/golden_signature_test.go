package upstream_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/goldentest"
	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/serde"
)

// TestGoldenSignatureVerdicts compares what is refused, and with which text.
func TestGoldenSignatureVerdicts(t *testing.T) {
	for _, f := range goldentest.Files(t, "signatures") {
		var d struct {
			ReaderVerify []struct {
				Form       string
				Get, Touch json.RawMessage
			} `json:"reader_verify"`
			WriterVerify []struct {
				Form string
				R    json.RawMessage
			} `json:"writer_verify"`
		}
		f.Decode(t, &d)
		verified, skipped := 0, 0
		s := newStore(t, objstore.Options{RingSize: 4096, MaxObjectSize: 1024, Readers: 1})
		good, err := s.Put("k", pickled([]byte("v")))
		require.NoError(t, err)
		other := func(change func(*serde.Address)) serde.Address {
			h := good
			change(&h)
			return h
		}
		// A list of another length is no signature in Go: the parser of items refuses it.
		lists := map[string][]byte{"short": good.Signature[:31], "long": append(good.Signature[:], 0), "empty": {}}
		forms := map[string]serde.Address{
			"good":      good,
			"none":      other(func(h *serde.Address) { h.Signature = serde.Signature{} }),
			"flip0":     other(func(h *serde.Address) { h.Signature[0] ^= 1 }),
			"flip31":    other(func(h *serde.Address) { h.Signature[31] ^= 128 }),
			"other_key": good,
			"addr+1":    other(func(h *serde.Address) { h.Address++ }),
			"id+1":      other(func(h *serde.Address) { h.ID++ }),
		}
		for _, c := range d.ReaderVerify {
			h, ok := forms[c.Form]
			if list, ok := lists[c.Form]; ok {
				err := s.VerifyItem("k", withSignature(good, list))
				require.ErrorIs(t, err, objstore.ErrBadSignature)
				verdict(t, c.Get, err, c.Form)
				if c.Touch != nil {
					verdict(t, c.Touch, err, c.Form)
				}
				verified++
				continue
			}
			if !ok {
				skipped++ // lists of something other than bytes: serde refuses them, see there
				continue
			}
			key := "k"
			if c.Form == "other_key" {
				key = "j"
			}
			v, err := s.readers[0].Get(key, h)
			if err == nil {
				require.NoError(t, v.Release())
			}
			verdict(t, c.Get, err, c.Form)
			if c.Touch != nil {
				verdict(t, c.Touch, s.readers[0].Touch(context.Background(), key, h), c.Form)
			}
			verified++
		}
		wforms := map[string]func() error{
			"good":     func() error { return s.Verify("k", good) },
			"none_sig": func() error { return s.Verify("k", forms["none"]) },
			"none_key": func() error { return s.Verify("", good) },
			"other_id_signed": func() error {
				return s.Verify("k", serde.Address{Address: good.Address, ID: good.ID + 1, Signature: sign("k", good.Address, good.ID+1)})
			},
			"unknown_key_signed": func() error { return s.Verify("zz", serde.Address{Signature: sign("zz", 0, 0)}) },
			"after_clear":        func() error { require.NoError(t, s.Clear()); return s.Verify("k", good) },
		}
		for _, c := range d.WriterVerify {
			require.Contains(t, wforms, c.Form)
			verdict(t, c.R, wforms[c.Form](), c.Form)
			verified++
		}
		require.NotZero(t, verified)
		t.Logf("%s: %d verifications; not expressible in Go's types: %d; releases %v", f.Name, verified, skipped, f.Releases)
	}
}

// withSignature returns the address item of a handle with a list in place of its
// signature.
func withSignature(h serde.Address, list []byte) *serde.Item {
	it := serde.NewAddressItem(h, "image")
	numbers := make([]any, len(list))
	for i, b := range list {
		numbers[i] = int64(b)
	}
	it.Elems[2].Data = numbers
	return it
}

// verdict compares with "ok" or an error.
func verdict(t testing.TB, want json.RawMessage, err error, form string) {
	t.Helper()
	if string(want) == `"ok"` {
		require.NoError(t, err, form)
		return
	}
	sameResult(t, want, err, form)
}
