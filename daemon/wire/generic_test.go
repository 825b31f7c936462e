package wire

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"
	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/encoder"
)

// tree returns what a message is in MessagePack, from the tags of its fields alone: maps, lists, texts,
// bytes, bools, and all integers as int64 or, where they need it, uint64.
func tree(v reflect.Value) any {
	switch v.Kind() {
	case reflect.Pointer:
		return tree(v.Elem())
	case reflect.String:
		return v.String()
	case reflect.Bool:
		return v.Bool()
	case reflect.Int, reflect.Int64:
		return v.Int()
	case reflect.Uint32, reflect.Uint64:
		return number(v.Uint())
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return v.Bytes()
		}
		out := list{}
		for i := range v.Len() {
			out = append(out, tree(v.Index(i)))
		}
		return out
	}
	out := map[string]any{}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		key, more, _ := strings.Cut(f.Tag.Get("msg"), ",")
		if v.Type() == reflect.TypeFor[encoder.Fingerprint]() {
			key = strings.ToLower(f.Name)
		}
		if !v.Field(i).IsZero() && (f.Type.Kind() != reflect.Slice || v.Field(i).Len() > 0) || strings.Contains(more, "needed") {
			out[key] = tree(v.Field(i))
		}
	}
	return out
}

func number(n uint64) any {
	if int64(n) >= 0 {
		return int64(n)
	}
	return n
}

// plain makes what the general decoder returns comparable with a tree.
func plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			v[k] = plain(e)
		}
		return v
	case []any:
		for i, e := range v {
			v[i] = plain(e)
		}
		return v
	}
	switch r := reflect.ValueOf(v); {
	case r.CanInt():
		return r.Int()
	case r.CanUint():
		return number(r.Uint())
	}
	return v
}

// general reads a message of a type with the general decoder, without what has no field there.
func general(t require.TestingT, body []byte, typ reflect.Type) any {
	d := msgpack.NewDecoder(bytes.NewReader(body))
	v, err := known(d, typ)
	require.NoError(t, err)
	return plain(v)
}

func known(d *msgpack.Decoder, typ reflect.Type) (any, error) {
	switch {
	case typ == reflect.TypeFor[*encoder.Fingerprint]():
		typ = reflect.TypeFor[fingerprint]()
	case typ.Kind() == reflect.Pointer:
		typ = typ.Elem()
	case typ.Kind() == reflect.Slice && typ.Elem().Kind() == reflect.Struct:
		n, err := d.DecodeArrayLen()
		out := list{}
		for range n {
			v, err := known(d, typ.Elem())
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		return out, err
	}
	if typ.Kind() != reflect.Struct {
		return d.DecodeInterface()
	}
	n, err := d.DecodeMapLen()
	out := map[string]any{}
	for range n {
		key, err := d.DecodeString()
		if err != nil {
			return nil, err
		}
		at := slices.IndexFunc(reflect.VisibleFields(typ), func(f reflect.StructField) bool {
			k, _, _ := strings.Cut(f.Tag.Get("msg"), ",")
			return k == key
		})
		if at < 0 {
			err = d.Skip()
		} else {
			out[key], err = known(d, typ.Field(at).Type)
		}
		if err != nil {
			return nil, err
		}
	}
	return out, err
}

// scattered writes a tree by the general encoder, with keys in any order, and lengths and integers in longer
// forms than needed.
func scattered(t require.TestingT, b *bytes.Buffer, v any, r *rand.Rand) {
	e := msgpack.NewEncoder(b)
	var err error
	switch v := v.(type) {
	case map[string]any:
		if err = e.EncodeMapLen(len(v)); r.IntN(2) == 0 {
			b.Truncate(b.Len() - 1) // fewer than 16 keys are one byte
			b.Write([]byte{0xde, 0, byte(len(v))})
		}
		var all []string
		for k := range v {
			all = append(all, k)
		}
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		for _, k := range all {
			scattered(t, b, k, r)
			scattered(t, b, v[k], r)
		}
	case []any:
		err = e.EncodeArrayLen(len(v))
		for _, x := range v {
			scattered(t, b, x, r)
		}
	case string:
		if len(v) < 1<<16 && r.IntN(2) == 0 {
			b.Write([]byte{0xda, byte(len(v) >> 8), byte(len(v))})
			b.WriteString(v)
		} else {
			err = e.EncodeString(v)
		}
	case int64:
		e.UseCompactInts(r.IntN(2) == 0)
		if v >= 0 && r.IntN(2) == 0 {
			err = e.EncodeUint(uint64(v))
		} else {
			err = e.EncodeInt(v)
		}
	default:
		err = e.Encode(v)
	}
	require.NoError(t, err)
}

// TestAgreesWithAGeneralCodec: what we write is what another library reads, and the reverse, in whatever
// order and form.
func TestAgreesWithAGeneralCodec(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		q := drawRequest(t)
		frame, err := AppendRequest(nil, q)
		require.NoError(t, err)
		want := tree(reflect.ValueOf(*q))
		require.Equal(t, want, general(t, body(t, frame), reflect.TypeFor[Request]()))
		var b bytes.Buffer
		scattered(t, &b, want, r)
		var got Request
		require.NoError(t, DecodeRequest(b.Bytes(), &got), "%x", b.Bytes())
		require.Equal(t, want, tree(reflect.ValueOf(got)))

		p := drawReply(t)
		frame, err = AppendReply(nil, p)
		require.NoError(t, err)
		want = tree(reflect.ValueOf(*p))
		require.Equal(t, want, general(t, body(t, frame), reflect.TypeFor[Reply]()))
		b.Reset()
		scattered(t, &b, want, r)
		var reply Reply
		require.NoError(t, DecodeReply(b.Bytes(), &reply), "%x", b.Bytes())
		require.Equal(t, want, tree(reflect.ValueOf(reply)))
	})
}

// paths adds the fields of a message that are set in a tree.
func paths(in map[string]bool, at string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			in[at+"."+k] = true
			paths(in, at+"."+k, e)
		}
	case list:
		for _, e := range v {
			paths(in, at, e)
		}
	}
}

// allPaths adds all fields that a message can have.
func allPaths(in map[string]bool, at string, typ reflect.Type) {
	switch {
	case typ == reflect.TypeFor[encoder.Fingerprint]():
		typ = reflect.TypeFor[fingerprint]()
	case typ.Kind() == reflect.Pointer, typ.Kind() == reflect.Slice:
		allPaths(in, at, typ.Elem())
	}
	if typ.Kind() != reflect.Struct {
		return
	}
	for _, f := range reflect.VisibleFields(typ) {
		key, _, _ := strings.Cut(f.Tag.Get("msg"), ",")
		in[at+"."+key] = true
		allPaths(in, at+"."+key, f.Type)
	}
}

// TestEveryFieldIsDrawn: a field that nobody draws is tested by no other test here, and fuzzing finds no new field.
func TestEveryFieldIsDrawn(t *testing.T) {
	want := map[string]bool{}
	allPaths(want, "request", reflect.TypeFor[Request]())
	allPaths(want, "reply", reflect.TypeFor[Reply]())
	require.Contains(t, want, "request.objects.cost")
	require.Contains(t, want, "request.fingerprint.model")

	examples := map[string]bool{}
	for _, q := range requestExamples() {
		paths(examples, "request", tree(reflect.ValueOf(*q)))
	}
	for _, p := range replyExamples() {
		paths(examples, "reply", tree(reflect.ValueOf(*p)))
	}
	require.Equal(t, want, examples, "the examples set other fields")

	requests, replies := rapid.Custom(drawRequest), rapid.Custom(drawReply)
	drawn := map[string]bool{}
	for seed := range 500 {
		paths(drawn, "request", tree(reflect.ValueOf(*requests.Example(seed))))
		paths(drawn, "reply", tree(reflect.ValueOf(*replies.Example(seed))))
	}
	require.Equal(t, want, drawn, "what is drawn sets other fields")
}
