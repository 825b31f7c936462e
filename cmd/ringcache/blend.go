package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/ringcache/ringcache/blend"
	"github.com/ringcache/ringcache/blend/chunks"
	"github.com/ringcache/ringcache/tier"
)

type blendCommand struct {
	levelArgs
	Tokens []int64 `arg:"" optional:"" help:"The prompt, as the numbers of its tokens."`
	File   string  `short:"f" placeholder:"FILE" help:"File with the tokens, - for stdin: as for ringcache kv find."`
	Model  string  `placeholder:"FILE" help:"config.json of the model, for estimates of work."`
	Query  int     `default:"1" help:"Tokens at the end that are always computed."`
	Check  int     `default:"1" help:"Layer at which tokens are selected."`
	Ratio  float64 `default:"0.15" help:"Part of the tokens that is computed behind the check, from 0 to 1."`
	JSON   bool    `name:"json" help:"Print one JSON list, with an element for each space."`
}

// Help is the end of ringcache blend --help.
func (blendCommand) Help() string {
	return `Says which chunks of a prompt a level has, at any place, and what is left to compute if they are moved
there and the tokens that deviate most are computed again (CacheBlend). It reads the list of objects, and no KV. LEVEL
is as for ringcache tier. Chunks are stored by package blend/chunks; objects without its notes, and segments between
separators, are not considered.

Work is estimated by formula: 2 operations for each weight that a token meets, and 4 for each element of its queries
and each token that it attends to. No time is predicted, and nothing is said about answers: see docs/blend.md.`
}

// Run explains a prompt.
func (c blendCommand) Run() error {
	prompt, err := kvFind{Tokens: c.Tokens, File: c.File}.prompt(os.Stdin)
	if err != nil {
		return err
	}
	o := chunks.ExplainOptions{
		Suffix: c.Query, Checks: []blend.Check{{Layer: c.Check, Selection: blend.Selection{Ratio: c.Ratio}}},
	}
	if c.Model != "" {
		config, err := readSmall(c.Model)
		if err != nil {
			return err
		}
		dims, err := blend.ParseDims(config)
		if err != nil {
			return fmt.Errorf("%s: %w", c.Model, err)
		}
		o.Dims = &dims
	}
	return c.use(false, func(ctx context.Context, level tier.Level, space string) error {
		o.Space = space
		all, err := chunks.Explain(ctx, level, prompt, o)
		if err != nil {
			return err
		}
		if len(all) == 0 {
			return errors.New("the level has no chunks with notes of package blend/chunks")
		}
		if c.JSON {
			return writeJSON(os.Stdout, all)
		}
		for i, e := range all {
			if i > 0 {
				fmt.Println()
			}
			if err := printExplanation(os.Stdout, e); err != nil {
				return err
			}
		}
		return nil
	})
}

func printExplanation(out io.Writer, e chunks.Explanation) error {
	fmt.Fprintf(out, "space %s: %d chunks of %d tokens, %d layers of %d heads of %d %s\n",
		printable(e.Space), e.Known, e.Window, e.Shape.Layers, e.Shape.Heads, e.Shape.HeadDim, e.Shape.DType)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "FROM\tTO\tTOKENS\tCHUNK\tWAS AT")
	gaps := e.Gaps
	for _, f := range e.Chunks {
		for len(gaps) > 0 && gaps[0].Start < f.Start {
			printGap(t, gaps[0])
			gaps = gaps[1:]
		}
		at := fmt.Sprint(f.Position)
		if f.Unrotated {
			at = "no position"
		}
		fmt.Fprintf(t, "%d\t%d\t%d\t%.16s\t%s\n", f.Start, f.End, f.End-f.Start, printable(f.Name), at)
	}
	for _, g := range gaps {
		printGap(t, g)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	found := 0
	for _, f := range e.Chunks {
		found += f.End - f.Start
	}
	rows := int64(0)
	for _, n := range e.Rows {
		rows += int64(n)
	}
	fmt.Fprintf(out, "found %d of %d tokens in %d chunks; %d from the first on are exact\n", found, e.Tokens,
		len(e.Chunks), e.Exact)
	fmt.Fprintf(out, "computed by layer: %d tokens; %d of %d in all\n", e.Rows, rows,
		int64(e.Tokens)*int64(e.Shape.Layers))
	_, err := fmt.Fprintf(out, "moved: %d bytes, of which %d are rotated\n", e.Moved, e.Rotated)
	if e.Prefill.FLOPs > 0 && err == nil {
		_, err = fmt.Fprintf(out, "estimated work: %.3g operations, "+
			"%.0f%% of the prefill behind the exact tokens (%.3g), %.0f%% of a whole one (%.3g)\n", e.Blend.FLOPs,
			100*e.Blend.FLOPs/e.Prefixed.FLOPs, e.Prefixed.FLOPs, 100*e.Blend.FLOPs/e.Prefill.FLOPs, e.Prefill.FLOPs)
	}
	return err
}

func printGap(t io.Writer, g blend.Range) {
	fmt.Fprintf(t, "%d\t%d\t%d\t-\t\n", g.Start, g.End, g.End-g.Start)
}
