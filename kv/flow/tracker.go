package flow

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/ringcache/ringcache/internal/sentinel"
	"github.com/ringcache/ringcache/kv"
)

// errInvalid is what every refusal of this package wraps.
var errInvalid = sentinel.New(sentinel.Invalid, "flow: invalid argument")

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errInvalid}, args...)...)
}

// Options are the settings of LMCache and vLLM that decide what is loaded and saved.
type Options struct {
	BlockTokens          int  // of a block of vLLM: block_size
	ChunkTokens          int  // of a chunk: chunk_size. 0 is kv.DefaultChunkTokens
	DiscardPartialChunks bool // discard_partial_chunks of the connector, or save_unfull_chunk is false
	SaveDecodeCache      bool // save_decode_cache: also tokens that the model has made
	NeverSave            bool // the role is kv_consumer, or LMCACHE_FORCE_SKIP_SAVE is set
	PriorityLimit        *int // priority_limit: requests above it are not saved. nil is none
	MinRetrieveTokens    int  // min_retrieve_tokens: fewer are not loaded. 0 is any number
	MaxTokensPerLoad     int  // lmcache.max_tokens_per_load: of one request. 0 is no bound
	SkipLastTokens       int  // skip_last_n_tokens: so many at the end of a request are not looked up
}

// maxTokens bounds blocks and chunks.
const maxTokens = 1 << 20

// Validate reports what is wrong with the options.
func (o Options) Validate() error {
	if o.BlockTokens < 1 || o.BlockTokens > maxTokens || o.ChunkTokens < 0 || o.ChunkTokens > maxTokens {
		return invalid(
			"blocks of %d tokens, chunks of %d; 1 to %d are possible",
			o.BlockTokens, o.ChunkTokens, maxTokens)
	}
	if o.MinRetrieveTokens < 0 || o.MaxTokensPerLoad < 0 || o.SkipLastTokens < 0 {
		return invalid("options: a number of tokens is negative: %+v", o)
	}
	return nil
}

func (o Options) withDefaults() Options {
	if o.ChunkTokens == 0 {
		o.ChunkTokens = kv.DefaultChunkTokens
	}
	return o
}

// Media is an image or other item in a prompt: its identifier (vLLM's mm_hash), and where its placeholder tokens are.
type Media struct {
	Identifier     string
	Offset, Length int
}

// Request is a request as the engine has it.
type Request struct {
	ID           string
	Tokens       []int64 // all that there are: the prompt, and what the model has made
	PromptTokens int     // how many of them are the prompt
	Media        []Media // in the prompt
	// Options are LMCache's options of the request: the JSON object of those whose names begin with lmcache.,
	// or empty. lmcache.skip_save says that it is not saved. kv.ParseTags reads the tags.
	Options  string
	Priority int
}

func (r Request) check() error {
	if r.PromptTokens < 0 || r.PromptTokens > len(r.Tokens) {
		return invalid("request %.80q: a prompt of %d of %d tokens", r.ID, r.PromptTokens, len(r.Tokens))
	}
	for _, m := range r.Media {
		if m.Offset < 0 || m.Length < 0 || m.Offset > math.MaxInt32 || m.Length > math.MaxInt32 {
			return invalid("request %.80q: media at %d, of %d tokens", r.ID, m.Offset, m.Length)
		}
	}
	_, err := skipSave(r.Options)
	return err
}

// skipSave reads lmcache.skip_save: whatever Python takes for true is true.
func skipSave(options string) (bool, error) {
	if options == "" {
		return false, nil
	}
	var o map[string]any
	if err := json.Unmarshal([]byte(options), &o); err != nil {
		return false, invalid("options of a request: %w", err)
	}
	switch v := o["lmcache.skip_save"].(type) {
	case nil:
		return false, nil
	case bool:
		return v, nil
	case float64:
		return v != 0, nil
	case string:
		return v != "", nil
	case []any:
		return len(v) > 0, nil
	case map[string]any:
		return len(v) > 0, nil
	}
	return false, nil
}

// Named returns the tokens as they are named: with the values of media in place of placeholders. tokens is the
// front of the request's tokens; it is returned itself if the request has no media.
func (r Request) Named(tokens []int64) []int64 { return named(tokens, r.Media) }

func named(tokens []int64, media []Media) []int64 {
	if len(media) == 0 {
		return tokens
	}
	out := slices.Clone(tokens)
	var packed []byte
	for _, m := range media {
		if m.Offset >= len(out) {
			continue
		}
		at := out[m.Offset:min(m.Offset+m.Length, len(out))]
		packed = kv.AppendPlaceholders(packed[:0], m.Identifier, len(at))
		for i := range at {
			b := packed[4*i:]
			at[i] = int64(b[0])<<24 | int64(b[1])<<16 | int64(b[2])<<8 | int64(b[3])
		}
	}
	return out
}

// LoadSpec says what of a request may be loaded.
type LoadSpec struct {
	EngineTokens int  // that the engine has itself: vllm_cached_tokens
	CacheTokens  int  // from the first one on, that are stored: lmcache_cached_tokens
	CanLoad      bool // whether the engine has blocks for them
}

// SaveSpec says what of a request is saved.
type SaveSpec struct {
	SkipTokens int  // at the front, that are saved already: skip_leading_tokens
	CanSave    bool // whether anything may be saved
}

// Tracker is what is known of a request from step to step (RequestTracker).
type Tracker struct {
	ID           string
	PromptTokens int
	Tokens       []int64 // that were scheduled so far
	Blocks       []int64 // that the request has; they may have room for more tokens
	SavedTokens  int
	CacheTokens  int // that were stored when the request began
	Decodes      bool
	SkipSave     bool
	Media        []Media
	Options      string
}

// NewTracker returns the tracker of a request that is scheduled first: toCompute of its tokens have a place after the
// step, of which cached were found by the look-up.
func NewTracker(r Request, blocks []int64, toCompute, cached int, skipSave bool) (*Tracker, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	if toCompute < 0 || cached < 0 {
		return nil, invalid("request %.80q: %d tokens to compute, %d cached", r.ID, toCompute, cached)
	}
	return &Tracker{
		ID: r.ID, PromptTokens: r.PromptTokens,
		Tokens:      slices.Clone(r.Tokens[:min(toCompute, r.PromptTokens)]),
		Blocks:      slices.Clone(blocks),
		SavedTokens: cached, CacheTokens: cached, SkipSave: skipSave, Media: slices.Clone(r.Media), Options: r.Options,
	}, nil
}

// Update adds the tokens and blocks of a further step.
func (t *Tracker) Update(tokens, blocks []int64) {
	t.Blocks = append(t.Blocks, blocks...)
	t.Tokens = append(t.Tokens, tokens...)
	t.decode(len(tokens))
}

// Resume begins again behind a preemption: of all tokens of the request, count are in this step, behind the
// computed ones. blocks replace those that it had, and cached tokens were found by the look-up.
func (t *Tracker) Resume(all []int64, computed, count int, blocks []int64, cached int) {
	t.Blocks = slices.Clone(blocks)
	t.SavedTokens = cached
	t.Tokens = slices.Clone(all[:min(computed+count, len(all))])
	t.decode(count)
}

func (t *Tracker) decode(count int) {
	if count == 1 { // LMCache can't tell it from the last token of a prefill in parts, either
		t.Decodes = true
	}
}

// rollBack forgets tokens that the engine computes again, as after a load that failed. all are all tokens of
// the request.
func (t *Tracker) rollBack(all []int64, computed, blockTokens int) {
	if computed >= len(t.Tokens) {
		return
	}
	keep := min(computed, len(t.Blocks)*blockTokens)
	t.Tokens = slices.Clone(all[:min(keep, len(all))])
	t.SavedTokens = min(t.SavedTokens, keep)
}

// Meta is what a step does for one request (ReqMeta).
type Meta struct {
	ID          string
	Tokens      []int64 // from the first one on, as far as anything is loaded or saved, with the values of media
	Slots       []int64 // of Tokens; fewer if the request has too few blocks
	LastPrefill bool    // whether the whole prompt is computed after this step
	Save        SaveSpec
	Load        *LoadSpec // nil if nothing was looked up
	Options     string
}

// Meta returns what the step does, or nil if nothing is loaded or saved. What is to be saved counts as saved
// from now on.
func (t *Tracker) Meta(o Options, load *LoadSpec) (*Meta, error) {
	o = o.withDefaults()
	n := len(t.Tokens)
	optedOut, err := skipSave(t.Options)
	if err != nil {
		return nil, err
	}
	boundary := (t.SavedTokens/o.ChunkTokens + 1) * o.ChunkTokens
	skip := t.SkipSave || t.SavedTokens > 0 && n < boundary || t.Decodes && !o.SaveDecodeCache || optedOut
	if skip && load == nil {
		return nil, nil //nolint:nilnil // the request is not part of the step's metadata
	}
	m := &Meta{
		ID: t.ID, LastPrefill: n >= t.PromptTokens,
		Save: SaveSpec{SkipTokens: t.SavedTokens, CanSave: !skip},
		Load: load, Options: t.Options,
	}
	if !m.LastPrefill || o.DiscardPartialChunks {
		n = n / o.ChunkTokens * o.ChunkTokens
	}
	if !skip {
		t.SavedTokens = n
	}
	m.Tokens = named(t.Tokens[:n], t.Media)
	if len(t.Media) == 0 {
		m.Tokens = slices.Clone(m.Tokens)
	}
	m.Slots = AppendSlots(nil, t.Blocks, o.BlockTokens, n)
	return m, nil
}

// AppendSlots appends the slots of the first n tokens of a request: token i is in block
// blocks[i/blockTokens], which is the run of blockTokens slots from blocks[i/blockTokens]*blockTokens on.
// They end with the blocks.
func AppendSlots(dst, blocks []int64, blockTokens, n int) []int64 {
	n = min(n, len(blocks)*blockTokens)
	dst = slices.Grow(dst, max(n, 0))
	for i := range n {
		dst = append(dst, blocks[i/blockTokens]*int64(blockTokens)+int64(i%blockTokens))
	}
	return dst
}

// A Transfer is what a worker copies: tokens and their slots, without the first Skip ones, where LMCache's mask is
// False. Skip is a multiple of the chunk.
type Transfer struct {
	Tokens, Slots []int64
	Skip          int
}

// ToLoad returns what is loaded. ok is false if nothing is, or if the request has too few blocks. The tokens that
// the engine has itself are loaded, too, as far as they share a chunk with others.
func (m *Meta) ToLoad(chunkTokens int) (t Transfer, ok bool) {
	if m.Load == nil || !m.Load.CanLoad || len(m.Slots) != len(m.Tokens) || chunkTokens < 1 {
		return Transfer{}, false
	}
	n := min(m.Load.CacheTokens, len(m.Tokens))
	return m.transfer(n, m.Load.EngineTokens, chunkTokens)
}

// ToSave returns what is saved. ok is false if nothing is, or if the request has too few blocks.
func (m *Meta) ToSave(chunkTokens int) (t Transfer, ok bool) {
	if !m.Save.CanSave || len(m.Slots) != len(m.Tokens) || chunkTokens < 1 || m.Save.SkipTokens == len(m.Tokens) {
		return Transfer{}, false
	}
	n := len(m.Tokens)
	if !m.LastPrefill {
		n = n / chunkTokens * chunkTokens
	}
	return m.transfer(n, m.Save.SkipTokens, chunkTokens)
}

func (m *Meta) transfer(n, skip, chunkTokens int) (Transfer, bool) {
	skip = min(skip/chunkTokens*chunkTokens, n)
	return Transfer{m.Tokens[:n], m.Slots[:n], skip}, skip < n
}

// ErrPending is returned by a look-up that has not ended, and by Matched then: the engine asks again later.
var ErrPending = errors.New("flow: the look-up has not ended")
