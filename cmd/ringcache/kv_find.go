package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/ringcache/ringcache/daemon/wire"
	"github.com/ringcache/ringcache/internal/terminal"
	"github.com/ringcache/ringcache/kv"
)

type kvFind struct {
	kvDaemon
	Tokens []int64 `arg:"" optional:"" help:"The prompt, as the numbers of its tokens."`
	File   string  `short:"f" placeholder:"FILE" help:"File with the tokens, - for stdin."`
	Model  string  `help:"Only this model, as its engines have it."`
	Salt   string  `help:"cache_salt of the request."`
	JSON   bool    `name:"json" help:"Print one JSON list, with an element for each layout."`
}

// Help is the end of ringcache kv find --help.
func (kvFind) Help() string {
	return `A file has numbers with spaces, commas or ends of lines between them, or JSON: a list, or an object with a list
named tokens, which is how the /tokenize of vllm serve answers:

  curl -s 127.0.0.1:8000/tokenize -d '{"model": "MODEL", "prompt": "..."}' | ringcache kv find -f -

For each layout that engines have registered: how many tokens from the first on an engine would load (ANY LEVEL), and
how many from one level alone; and how many chunks that level has of the prompt, of all workers and groups, with their
bytes. Then the leases that keep some of these chunks: look-ups and loads of engines that go on, or those of engines
that were killed, until their time is up.

A salt can't be found out: it is part of the keys, so that users who do not know it find nothing. Images in a prompt
have tokens that the engine computes from their content, and a tokenizer does not.`
}

// kvFound is what is there of a prompt, for one layout.
type kvFound struct {
	Model     string         `json:"model"`
	Word      string         `json:"word,omitempty"`
	Workers   int            `json:"workers"`
	Salt      string         `json:"salt"`
	Chunk     int            `json:"chunk"`  // tokens
	Tokens    int            `json:"tokens"` // of the prompt
	Found     int            `json:"found"`  // tokens that an engine would load
	Objects   int            `json:"objects"`
	Bytes     int64          `json:"bytes"`
	Away      bool           `json:"away"`   // a level did not answer, so there may be more
	Levels    []kvFoundLevel `json:"levels"` // fastest first
	Leases    []kvFoundLease `json:"leases"`
	Spaces    []string       `json:"spaces"`
	FirstMiss string         `json:"first_miss,omitempty"` // name of the first chunk that is not found
}

type kvFoundLevel struct {
	Name    string `json:"name"`
	Found   int    `json:"found"` // tokens that could be loaded from it alone
	Objects int    `json:"objects"`
	Bytes   int64  `json:"bytes"`
}

type kvFoundLease struct {
	Name    string `json:"name"`
	Client  string `json:"client"`
	PID     int    `json:"pid"`
	Seconds int64  `json:"seconds"` // as in serve status
	Objects int    `json:"objects"` // of the prompt's
	Waiting bool   `json:"waiting"`
}

// Run looks a prompt up.
func (c kvFind) Run() error {
	tokens, err := c.prompt(os.Stdin)
	if err != nil {
		return err
	}
	return c.use(func(ctx context.Context, s *kvSession) error {
		layouts, err := s.of(c.Model)
		if err != nil {
			return err
		}
		all := []kvFound{}
		for _, l := range layouts {
			found, err := s.find(ctx, l, c.Salt, tokens)
			if err != nil {
				return err
			}
			all = append(all, found)
		}
		if c.JSON {
			return writeJSON(os.Stdout, all)
		}
		for i, f := range all {
			if i > 0 {
				fmt.Println()
			}
			if err := f.print(os.Stdout); err != nil {
				return err
			}
		}
		return nil
	})
}

// prompt returns the tokens that the command line names.
func (c kvFind) prompt(stdin io.Reader) ([]int64, error) {
	tokens := c.Tokens
	switch {
	case c.File != "" && len(tokens) > 0:
		return nil, errors.New("give the tokens as numbers, or in a file by -f, not both")
	case c.File != "":
		in := stdin
		if c.File != "-" {
			f, err := os.Open(c.File)
			if err != nil {
				return nil, err
			}
			defer f.Close()
			in = f
		}
		const most = 64 << 20 // some ten million tokens
		b, err := io.ReadAll(io.LimitReader(in, most+1))
		if err == nil && len(b) > most {
			err = fmt.Errorf("%s has more than %d bytes", terminal.Text(c.File), most)
		}
		if err != nil {
			return nil, err
		}
		if tokens, err = parseTokens(b); err != nil {
			return nil, fmt.Errorf("%s: %w", c.File, err)
		}
	}
	if len(tokens) == 0 {
		return nil, errors.New("no tokens: give their numbers, or a file by -f, or - for stdin")
	}
	return tokens, nil
}

// parseTokens reads numbers, or JSON.
func parseTokens(b []byte) (tokens []int64, err error) {
	b = bytes.TrimSpace(b)
	switch {
	case bytes.HasPrefix(b, []byte("{")):
		var answer struct{ Tokens []int64 }
		err = json.Unmarshal(b, &answer)
		tokens = answer.Tokens
	case bytes.HasPrefix(b, []byte("[")):
		err = json.Unmarshal(b, &tokens)
	default:
		for _, text := range strings.FieldsFunc(string(b),
			func(r rune) bool { return strings.ContainsRune(" \t\r\n,", r) }) {
			n, err := strconv.ParseUint(text, 10, 32)
			if err != nil {
				return nil, fmt.Errorf("%.40q is no token: want numbers from 0 to %d, or JSON",
					text, uint32(math.MaxUint32))
			}
			tokens = append(tokens, int64(n))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("no list of tokens: %w", err)
	}
	return tokens, nil
}

// find looks up what is there of a prompt.
func (s *kvSession) find(ctx context.Context, l kv.Layout, salt string, tokens []int64) (kvFound, error) {
	out := kvFound{
		Model: l.Model, Word: l.Engine, Workers: l.World, Salt: salt, Chunk: l.ChunkTokens, Tokens: len(tokens),
		Levels: []kvFoundLevel{}, Leases: []kvFoundLease{},
	}
	names, err := chunkNames(l.ChunkTokens, tokens)
	if err != nil {
		return out, err
	}
	spaces, err := spacesOf(l, salt)
	if err != nil {
		return out, err
	}
	items := make([][][]wire.Item, len(spaces)) // of each worker, group and chunk
	for w, groups := range spaces {
		for _, space := range groups {
			out.Spaces = append(out.Spaces, space)
			found, err := s.locate(ctx, space, names, &out)
			if err != nil {
				return out, err
			}
			items[w] = append(items[w], found)
		}
	}
	if out.Found, err = longest(l, items, func(wire.Item) bool { return true }); err != nil {
		return out, err
	}
	if out.Found < len(names) {
		out.FirstMiss = names[out.Found]
	}
	out.Found *= l.ChunkTokens
	for i := range out.Levels {
		level := &out.Levels[i]
		n, err := longest(l, items, func(it wire.Item) bool { return slices.Contains(it.Levels, level.Name) })
		if err != nil {
			return out, err
		}
		level.Found = n * l.ChunkTokens
	}
	return out, nil
}

// chunkNames returns the names of the objects of a prompt's whole chunks.
func chunkNames(chunk int, tokens []int64) ([]string, error) {
	h, err := kv.NewHasher(kv.Scheme{ChunkTokens: chunk})
	if err != nil {
		return nil, err
	}
	chain := h.NewChain()
	if err := chain.SetTokens(tokens); err != nil {
		return nil, err
	}
	names := make([]string, chain.Len())
	for i := range names {
		names[i] = hex.EncodeToString(chain.Hash(i))
	}
	return names, nil
}

// longest returns how many chunks can be loaded, of those that are there and that count.
func longest(l kv.Layout, items [][][]wire.Item, counts func(wire.Item) bool) (int, error) {
	windows := make([]int, len(l.Groups))
	for g, group := range l.Groups {
		windows[g] = group.Window
	}
	return kv.LongestPrefix(windows, l.World, 0, len(items[0][0]), func(group, worker, first int, found []bool) error {
		for i := range found {
			it := items[worker][group][first+i]
			found[i] = it.Status == wire.StatusHit && counts(it)
		}
		return nil
	})
}

// locate asks where objects are, and adds them to what was found: their levels, bytes and leases.
func (s *kvSession) locate(ctx context.Context, space string, names []string, out *kvFound) ([]wire.Item, error) {
	var all []wire.Item
	for batch := range slices.Chunk(names, wire.MaxNames) {
		p, err := s.stat(ctx, wire.Request{Space: space, Names: batch})
		if err != nil {
			return nil, err
		}
		all = append(all, p.Items...)
		for _, it := range p.Items {
			switch it.Status {
			case wire.StatusHit:
				out.add(it, p.State.Levels)
			case wire.StatusUnavailable:
				out.Away = true
			}
		}
		for _, l := range p.Leases {
			if l.Names == 0 {
				continue
			}
			i := slices.IndexFunc(out.Leases, func(f kvFoundLease) bool { return f.Name == l.Name })
			if i < 0 {
				i = len(out.Leases)
				out.Leases = append(out.Leases, kvFoundLease{
					Name: l.Name, Client: l.Client, PID: l.PID, Seconds: l.Seconds, Waiting: l.Waiting,
				})
			}
			out.Leases[i].Objects += l.Names
		}
	}
	return all, nil
}

// add counts an object.
func (f *kvFound) add(it wire.Item, levels []wire.Level) {
	f.Objects, f.Bytes = f.Objects+1, f.Bytes+it.Size
	for _, l := range levels {
		if !slices.ContainsFunc(f.Levels, func(known kvFoundLevel) bool { return known.Name == l.Name }) {
			f.Levels = append(f.Levels, kvFoundLevel{Name: l.Name})
		}
	}
	for i := range f.Levels {
		if l := &f.Levels[i]; slices.Contains(it.Levels, l.Name) {
			l.Objects, l.Bytes = l.Objects+1, l.Bytes+it.Size
		}
	}
}

// stat asks about names until the daemon has looked into all levels.
func (s *kvSession) stat(ctx context.Context, q wire.Request) (*wire.Reply, error) {
	for {
		p, err := s.Stat(ctx, q)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(p.Items, func(it wire.Item) bool { return it.Status == wire.StatusPending }) {
			if q.List {
				return p, nil
			}
			q.List = true // leases are listed once, not each time
			continue
		}
		if err := pause(ctx); err != nil {
			return nil, fmt.Errorf("a level does not answer, see `ringcache serve status`; --timeout is how long this waits: %w", err)
		}
	}
}

// print writes tables for people.
func (f *kvFound) print(to io.Writer) error {
	word, salt := "", ""
	if f.Word != "" {
		word = ", word " + printable(f.Word)
	}
	if f.Salt != "" {
		salt = ", salt " + printable(f.Salt)
	}
	fmt.Fprintf(to, "%s%s, workers: %d, chunks of %d tokens%s\n", printable(f.Model), word, f.Workers, f.Chunk, salt)
	fmt.Fprintf(to, "%d of %d tokens would be loaded\n", f.Found, f.Tokens)
	if f.Tokens < f.Chunk {
		fmt.Fprintln(to, "the prompt is shorter than a chunk, and only whole chunks are stored")
	}
	if f.Away {
		fmt.Fprintln(to, "a level does not answer, so there may be more: see `ringcache serve status`")
	}
	if f.Objects > 0 {
		fmt.Fprintln(to)
		w := newTable(to, "LEVEL", "TOKENS", "OBJECTS", "BYTES")
		w.row("any level", f.Found, f.Objects, size(f.Bytes))
		for _, l := range f.Levels {
			w.row(printable(l.Name), l.Found, l.Objects, size(l.Bytes))
		}
		if err := w.flush(); err != nil {
			return err
		}
	}
	if len(f.Leases) == 0 {
		return nil
	}
	fmt.Fprintln(to)
	w := newTable(to, "LEASE", "CLIENT", "PID", "LEFT", "OBJECTS")
	for _, l := range f.Leases {
		w.row(printable(l.Name), orNone(l.Client), l.PID, timeLeft(l.Seconds), l.Objects)
	}
	return w.flush()
}
