package model_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/model"
)

// run performs lines and returns the kinds of their replies, "ok" for success.
func run(t *testing.T, s fuzz.System, lines ...string) (kinds []string, last fuzz.Reply) {
	t.Helper()
	ops, err := fuzz.Parse(strings.Join(lines, "\n"))
	require.NoError(t, err)
	replies, err := s.Do(ops)
	require.NoError(t, err)
	for _, r := range replies {
		if last = r; r.Kind == "" {
			r.Kind = "ok"
		}
		kinds = append(kinds, r.Kind)
	}
	return kinds, last
}

func cacheRelease(t *testing.T, version string) model.Release {
	t.Helper()
	r, err := model.Lookup(version)
	require.NoError(t, err)
	return r
}

// What vLLM never returns from is decided, up to the release that mended it, and only where the
// model is asked to be vLLM.
func TestHangsOfLRUCache(t *testing.T) {
	const begin = `{"op":"lru.new","lru":"l","capacity":10}
		{"op":"lru.touch","lru":"l","key":"ghost"}
		{"op":"lru.put","lru":"l","key":"a","size":6}`
	const put = `{"op":"lru.put","lru":"l","key":"b","size":6}`
	const wipe, look = `{"op":"lru.clear","lru":"l"}`, `{"op":"lru.state","lru":"l"}`
	for _, c := range []struct {
		name, version string
		upstream      bool
		lines         []string
		want          string
	}{
		{"a put that evicts", "0.11.0", true, []string{begin, put, look}, "ok-ok-ok-hang-hang"},
		{"the last release", "0.23.0", true, []string{begin, put, look}, "ok-ok-ok-hang-hang"},
		{"mended", "0.24.0", true, []string{begin, put, look}, "ok-ok-ok-ok-ok"},
		{"the agent", "0.23.0", false, []string{begin, put, look}, "ok-ok-ok-ok-ok"},
		{"a clear", "0.12.0", true, []string{begin, wipe}, "ok-ok-ok-hang"},
		{"a clear without values", "0.12.0", true, []string{begin, `{"op":"lru.pop","lru":"l","key":"a"}`, wipe, put},
			"ok-ok-ok-ok-ok-ok"},
		{"its own ghost", "0.12.0", true, []string{begin, `{"op":"lru.put","lru":"l","key":"ghost","size":6}`},
			"ok-ok-ok-hang"},
		{"a ghost that got its value", "0.12.0", true,
			[]string{begin, `{"op":"lru.put","lru":"l","key":"ghost","size":1}`, put}, "ok-ok-ok-ok-ok"},
		{"a new cache of that name", "0.12.0", true, []string{begin, put, `{"op":"lru.close","lru":"l"}`, begin},
			"ok-ok-ok-hang-ok-ok-ok-ok"},
		{"not in the release", "0.28.0", true,
			[]string{begin, `{"op":"lru.put_if_fits","lru":"l","key":"b","size":6}`}, "ok-ok-ok-unsupported"},
		{"in the release", "0.29.0", true, []string{begin, `{"op":"lru.put_if_fits","lru":"l","key":"b","size":16}`},
			"ok-ok-ok-ok"},
	} {
		t.Run(c.name, func(t *testing.T) {
			kinds, _ := run(t, model.NewLRU(cacheRelease(t, c.version), model.CacheOptions{Upstream: c.upstream}),
				c.lines...)
			require.Equal(t, c.want, strings.Join(kinds, "-"))
		})
	}
	kinds, last := run(t, model.NewLRU(cacheRelease(t, "0.12.0"), model.CacheOptions{Upstream: true}), begin,
		`{"op":"lru.popitem","lru":"l"}`)
	require.Equal(t, "ok-ok-ok-ok", strings.Join(kinds, "-"))
	require.Equal(t, map[string]any{"key": "ghost", "size": int64(0)}, last.Fields,
		"vLLM returns it without a value, and keeps it")
}

// The rules that changed from release to release, at their borders.
func TestPairReleases(t *testing.T) {
	const item = `{"type":"tensor","data":{"dtype":"uint8","shape":[4],"hex":"01010101"}}`
	const other = `{"type":"tensor","data":{"dtype":"uint8","shape":[4],"hex":"02020202"}}`
	const large = `{"type":"tensor","data":{"dtype":"int16","shape":[6],"hex":"000000000000000000000000"}}`
	const receiver = `{"op":"pair.new","pair":"r","role":"receiver","capacity":10}`
	const sender = `{"op":"pair.new","pair":"s","role":"sender","capacity":10}`
	features := func(list string) string { return `{"op":"pair.features","pair":"r","features":[` + list + `]}` }
	for _, c := range []struct {
		name   string
		before string // the last release with the old reply
		old    string // the kind of the last reply, and what it shows
		since  string // the first release with the new one
		now    string
		lines  []string
	}{
		{"data that comes replaces", "0.30.0", "01010101", "0.31.0", "02020202", []string{
			receiver, features(`{"key":"a","value":` + item + `}`), features(`{"key":"a","value":` + other + `}`),
		}},
		{"all that is missing", "0.27.0", `["b"]`, "0.28.0", `["b","c"]`,
			[]string{receiver, features(`{"key":"b"},{"key":"c"}`)}},
		{"too large at the receiver", "0.28.0", "too_large", "0.29.0", "000000",
			[]string{receiver, features(`{"key":"a","value":` + large + `}`)}},
		{"too large at the sender", "0.28.0", "too_large", "0.29.0", `"sent"`, []string{
			sender, `{"op":"pair.update","pair":"s","key":"a","value":` + large + `}`,
		}},
		{"invalidate", "0.27.0", "unsupported", "0.28.0", "{}",
			[]string{sender, `{"op":"pair.invalidate","pair":"s","key":"a"}`}},
		{"touch", "0.11.0", "unsupported", "0.12.0", "{}",
			[]string{sender, `{"op":"pair.touch","pair":"s","key":"a"}`}},
		{"by the hash", "0.13.0", `["lora"]`, "0.14.0", `["hash"]`, []string{
			receiver, features(`{"key":"hash","identifier":"lora","value":` + item + `}`),
			`{"op":"pair.state","pair":"r"}`,
		}},
		{"touched first", "0.11.0", `["b","c"]`, "0.24.0", `["c","a"]`, []string{
			receiver, features(`{"key":"a","value":` + item + `},{"key":"b","value":` + item + `}`),
			features(`{"key":"c","value":` + item + `},{"key":"a"}`), `{"op":"pair.state","pair":"r"}`,
		}},
	} {
		for version, want := range map[string]string{c.before: c.old, c.since: c.now} {
			t.Run(c.name+" "+version, func(t *testing.T) {
				_, last := run(t, model.NewPair(cacheRelease(t, version), model.CacheOptions{Upstream: true}),
					c.lines...)
				shown := last.Kind + " " + last.String()
				if hashes, ok := last.Fields["hashes"].([]string); ok {
					shown = `["` + strings.Join(hashes, `","`) + `"]`
				}
				require.Contains(t, shown, want)
			})
		}
	}
}

// The models refuse what they don't handle, and never guess.
func TestModelsOfCachesRefuse(t *testing.T) {
	newest := cacheRelease(t, "0.33.0")
	for line, kind := range map[string]string{
		`{"op":"lru.new","lru":"x","capacity":-1}`:                      "invalid",
		`{"op":"lru.new","lru":"x"}`:                                    "invalid",
		`{"op":"lru.new","lru":"x","capacity":1,"generation":"9.9.9"}`:  "unsupported",
		`{"op":"lru.get","lru":"x","key":"a"}`:                          "invalid",
		`{"op":"lru.new","lru":"x","capacity":1,"colour":"red"}`:        "invalid",
		`{"op":"lru.new","lru":"x","capacity":1,"generation":"0.12.0"}`: "ok",
		`{"op":"lru.new","lru":"x","capacity":1.5,"grow_anew":true}`:    "ok",
		`{"op":"lru.new","lru":"x","capacity":1.5,"grow_anew":"yes"}`:   "invalid",
		`{"op":"lru.new","lru":5,"capacity":1.5}`:                       "invalid",
		`{"op":"lru.new","lru":"x","capacity":1e30}`:                    "invalid",
	} {
		kinds, _ := run(t, model.NewLRU(newest, model.CacheOptions{}), line)
		require.Equal(t, []string{kind}, kinds, line)
	}
	for line, kind := range map[string]string{
		`{"op":"pair.new","pair":"x","role":"both","capacity":1}`:                                                              "invalid",
		`{"op":"pair.new","pair":"x","role":"sender","capacity":1,"python":"2.7"}`:                                             "invalid",
		`{"op":"size_of","value":{"type":"pickle","hex":"80"}}`:                                                                "unsupported",
		`{"op":"size_of","value":{"type":"tensor","data":5}}`:                                                                  "invalid",
		`{"op":"size_of","value":{"type":"tensor","data":{"dtype":"uint8","shape":[2],"hex":"00"}}}`:                           "invalid",
		`{"op":"size_of","value":{"type":"item","fields":[]}}`:                                                                 "invalid",
		`{"op":"size_of","value":{"type":"item","fields":[{"name":"x","data":0,"field":{"kind":"batched"}}]},"python":"3.10"}`: "ok",
	} {
		kinds, _ := run(t, model.NewPair(newest, model.CacheOptions{}), line)
		require.Equal(t, []string{kind}, kinds, line)
	}
	for _, s := range []fuzz.System{model.NewLRU(newest, model.CacheOptions{}),
		model.NewPair(newest, model.CacheOptions{})} {
		_, err := s.Do([]fuzz.Op{{Name: "ring.new"}})
		require.ErrorContains(t, err, `"ring.new"`)
	}
	xof := `{"op":"size_of","value":{"type":"tensor","data":{"dtype":"uint8","shape":[2],"xof":"s"}}}`
	ops, err := fuzz.Parse(xof)
	require.NoError(t, err)
	_, err = model.NewPair(newest, model.CacheOptions{}).Do(ops)
	require.ErrorContains(t, err, "does not handle")
}
