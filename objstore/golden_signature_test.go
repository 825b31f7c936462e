package objstore

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/goldentest"
	"github.com/ringcache/ringcache/internal/sentinel"
)

// sameResult compares the error we returned with vLLM's.
func sameResult(t testing.TB, want json.RawMessage, err error, at ...any) {
	t.Helper()
	e := goldentest.AsError(want)
	if e == nil {
		require.NoError(t, err, at...)
		return
	}
	require.Error(t, err, at...)
	if e.Msg != "" {
		require.Equal(t, e.Msg, sentinel.UpstreamText(err), at...)
	}
}

func TestGoldenSignatures(t *testing.T) {
	for _, f := range goldentest.Files(t, "signatures") {
		var d struct {
			Sign []struct {
				Secret, Key, Payload, Signature string
				Address, ID                     json.RawMessage
				Result                          json.RawMessage
			}
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
		signed, unrepresentable := 0, 0
		for _, c := range d.Sign {
			if c.Result != nil {
				unrepresentable++ // negative, 2^64, id 2^32, lone surrogate: not values of our types
				continue
			}
			got := sign(goldentest.Hex(t, c.Secret), c.Key, goldentest.Unmarshal[uint64](t, c.Address), goldentest.Unmarshal[uint32](t, c.ID))
			require.Equal(t, c.Signature, hex.EncodeToString(got[:]), c.Key)
			signed++
		}
		verified, skipped := 0, 0
		s := newStore(t, Options{RingSize: 4096, MaxObjectSize: 1024, Readers: 1})
		good, err := s.Put("k", pickled([]byte("v")))
		require.NoError(t, err)
		other := func(change func(*Handle)) Handle {
			h := good
			h.Signature = slices.Clone(h.Signature)
			change(&h)
			return h
		}
		forms := map[string]Handle{
			"good":      good,
			"none":      other(func(h *Handle) { h.Signature = nil }),
			"flip0":     other(func(h *Handle) { h.Signature[0] ^= 1 }),
			"flip31":    other(func(h *Handle) { h.Signature[31] ^= 128 }),
			"short":     other(func(h *Handle) { h.Signature = h.Signature[:31] }),
			"long":      other(func(h *Handle) { h.Signature = append(h.Signature, 0) }),
			"empty":     other(func(h *Handle) { h.Signature = []byte{} }),
			"other_key": good,
			"addr+1":    other(func(h *Handle) { h.Address++ }),
			"id+1":      other(func(h *Handle) { h.ID++ }),
		}
		for _, c := range d.ReaderVerify {
			h, ok := forms[c.Form]
			if !ok {
				skipped++ // lists of something other than bytes: serde refuses them, see there
				continue
			}
			key := "k"
			if c.Form == "other_key" {
				key = "j"
			}
			v, err := s.readers[0].Get(h, key)
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
				return s.Verify("k", Handle{Address: good.Address, ID: good.ID + 1, Signature: signedBytes("k", good.Address, good.ID+1)})
			},
			"unknown_key_signed": func() error { return s.Verify("zz", Handle{Signature: signedBytes("zz", 0, 0)}) },
			"after_clear":        func() error { require.NoError(t, s.Clear()); return s.Verify("k", good) },
		}
		for _, c := range d.WriterVerify {
			require.Contains(t, wforms, c.Form)
			verdict(t, c.R, wforms[c.Form](), c.Form)
			verified++
		}
		require.NotZero(t, signed)
		require.NotZero(t, verified)
		t.Logf("%s: %d signatures, %d verifications; not expressible in Go's types: %d and %d; releases %v", f.Name, signed, verified, unrepresentable, skipped, f.Releases)
	}
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

// signedBytes is a signature under the secret of the golden files.
func signedBytes(key string, address uint64, id uint32) []byte {
	s := sign(secret(), key, address, id)
	return s[:]
}
