package main

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/ringcache/ringcache/inspect"
	"github.com/ringcache/ringcache/internal/terminal"
)

type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"${enum}."`
}

// Help is the end of ringcache completion --help.
func (completionCommand) Help() string {
	return `The script asks ringcache itself for what can stand at the cursor, so it need not be made anew with a new
release.

  bash: ringcache completion bash > ~/.local/share/bash-completion/completions/ringcache
  zsh:  ringcache completion zsh > "${fpath[1]}/_ringcache"
  fish: ringcache completion fish > ~/.config/fish/completions/ringcache.fish

Or for one session of a shell: source <(ringcache completion bash)`
}

// Run prints a script.
func (c completionCommand) Run() error {
	script, err := shells.ReadFile("shells/ringcache." + c.Shell)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(script)
	return err
}

// shells are scripts that ask `ringcache complete` for candidates, each with its help behind a tab. Without
// any, the shell offers files.
// See docs/decisions.md, "The command line completes and documents itself".
//
//go:embed shells
var shells embed.FS

type completeCommand struct {
	Words []string `arg:"" optional:"" passthrough:"" help:"The words up to the cursor; the last one may be a part."`
}

// Run prints what can stand in the place of the last word.
func (c completeCommand) Run(k *kong.Kong) error {
	words := c.Words
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	for _, x := range complete(k.Model.Node, words) {
		if !terminal.Printable(x.word) || strings.ContainsAny(x.word, " \t") {
			continue // no word that a shell could take over
		}
		if _, err := fmt.Printf("%s\t%s\n", x.word, terminal.Text(x.help)); err != nil {
			return err
		}
	}
	return nil
}

// candidate is a word that can stand at the cursor.
type candidate struct{ word, help string }

// complete returns what can stand in the place of the last word.
func complete(node *kong.Node, words []string) []candidate {
	if len(words) == 0 {
		words = []string{""}
	}
	last := words[len(words)-1]
	var awaits *kong.Flag // its value comes next
	positional, ended := 0, false
	dir := ""
	for _, w := range words[:len(words)-1] {
		switch {
		case w == "=": // bash makes a word of it
		case awaits != nil:
			if awaits.Name == "dir" {
				dir = w
			}
			awaits = nil
		case w == "--":
			ended = true
		case !ended && strings.HasPrefix(w, "-") && w != "-":
			name, value, given := strings.Cut(w, "=")
			f := flagNamed(node, name)
			if f != nil && !f.IsBool() && !given {
				awaits = f
			}
			if f != nil && f.Name == "dir" {
				dir = value
			}
		default:
			if child := childNamed(node, w); child != nil {
				node, positional = child, 0
			} else {
				positional++
			}
		}
	}
	if last == "=" {
		last = ""
	}
	switch name, value, given := strings.Cut(last, "="); {
	case awaits != nil:
		return matching(last, "", valuesOf(awaits.Value, dir))
	case !ended && strings.HasPrefix(last, "-") && given:
		if f := flagNamed(node, name); f != nil {
			return matching(value, name+"=", valuesOf(f.Value, dir))
		}
		return nil
	case !ended && strings.HasPrefix(last, "-"):
		return matching(last, "", flagsOf(node))
	}
	var all []candidate
	if positional == 0 {
		for _, c := range node.Children {
			if !c.Hidden {
				all = append(all, candidate{c.Name, c.Help})
			}
		}
	}
	if n := len(node.Positional); n > 0 {
		p := node.Positional[min(positional, n-1)]
		if positional < n || p.IsSlice() {
			all = append(all, valuesOf(p, dir)...)
		}
	}
	return matching(last, "", all)
}

// matching returns the candidates that begin with what is there, with a text in front of them.
func matching(begin, front string, all []candidate) (out []candidate) {
	for _, c := range all {
		if strings.HasPrefix(c.word, begin) {
			c.word = front + c.word
			out = append(out, c)
		}
	}
	return out
}

// valuesOf returns the values of a flag or an argument, as far as they can be known.
func valuesOf(v *kong.Value, dir string) (all []candidate) {
	if v.Tag != nil && v.Tag.Get("predict") == "segment" {
		found, err := inspect.List(inspect.Options{Dir: dir})
		if err != nil {
			return nil
		}
		for _, s := range found {
			all = append(all, candidate{s.Name, string(s.State)})
		}
		return all
	}
	for _, e := range v.EnumSlice() {
		if e != "" {
			all = append(all, candidate{e, ""})
		}
	}
	return all
}

// flagsOf returns the flags of a command, and those of the commands above.
func flagsOf(node *kong.Node) (all []candidate) {
	for _, group := range node.AllFlags(true) {
		for _, f := range group {
			all = append(all, candidate{"--" + f.Name, f.Help})
		}
	}
	return all
}

// flagNamed returns a flag by what stands on the command line.
func flagNamed(node *kong.Node, text string) *kong.Flag {
	for _, group := range node.AllFlags(false) {
		for _, f := range group {
			if text == "--"+f.Name || f.Short != 0 && text == "-"+string(f.Short) {
				return f
			}
		}
	}
	return nil
}

func childNamed(node *kong.Node, name string) *kong.Node {
	for _, c := range node.Children {
		if c.Name == name {
			return c
		}
	}
	return nil
}

type manCommand struct{}

// Help is the end of ringcache man --help.
func (manCommand) Help() string {
	return `It has all commands, and is made of the same texts as --help:

  ringcache man > ~/.local/share/man/man1/ringcache.1`
}

// Run prints the man page.
func (manCommand) Run(k *kong.Kong) error {
	if k.Model == nil {
		return errors.New("no model")
	}
	_, err := io.WriteString(os.Stdout, manPage(k.Model))
	return err
}
