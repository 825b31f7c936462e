package main

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/alecthomas/kong"
)

// manPage writes the model of the command line as a page of man(7).
func manPage(app *kong.Application) string {
	var b strings.Builder
	b.WriteString(".TH RINGCACHE 1\n.SH NAME\nringcache \\- " + roff(app.Help) + "\n")
	b.WriteString(".SH SYNOPSIS\n.B ringcache\n.I command\n[\\fIarguments\\fR]\n")
	b.WriteString(".SH DESCRIPTION\nThe commands are:\n")
	for _, n := range app.Children {
		if !n.Hidden {
			fmt.Fprintf(&b, ".TP\n\\fBringcache %s\\fR\n%s\n", roff(n.Name), roff(n.Help))
		}
	}
	for _, n := range app.Children {
		manCommandOf(&b, n)
	}
	b.WriteString(".SH ENVIRONMENT\n")
	for _, v := range [][2]string{
		{"RINGCACHE_SOCKET", "The socket of the daemon, where no flag names it."},
		{
			"RINGCACHE_CONFIG",
			"The daemon's configuration, where no flag names it. Each setting of ringcache serve is a variable, too.",
		},
		{
			"NO_COLOR",
			"If it is set, output has no colours. It has none where it goes to something else than a terminal.",
		},
	} {
		fmt.Fprintf(&b, ".TP\n\\fB%s\\fR\n%s\n", roff(v[0]), roff(v[1]))
	}
	b.WriteString(".SH EXIT STATUS\n0 if what was asked for was done, 80 if the command line is wrong; " +
		"the others are those of each command.\n")
	return b.String()
}

// manCommandOf writes the sections of a command and of those below it.
func manCommandOf(b *strings.Builder, n *kong.Node) {
	if n.Hidden {
		return
	}
	fmt.Fprintf(b, ".SH \"%s\"\n%s\n.PP\n\\fB%s\\fR\n", roff(strings.ToUpper(n.Path())), roff(n.Help),
		roff("ringcache "+n.Summary()))
	manText(b, n.Detail)
	item := func(style, name, help string) {
		fmt.Fprintf(b, ".TP\n\\f%s%s\\fR\n%s\n", style, roff(name), roff(help))
	}
	for _, p := range n.Positional {
		item("I", p.Summary(), p.Help)
	}
	for _, f := range n.Flags {
		if !f.Hidden {
			item("B", f.String(), f.Help)
		}
	}
	for _, c := range n.Children {
		manCommandOf(b, c)
	}
}

// manText writes a text of --help: paragraphs, and lines that stand as they are if they are indented.
func manText(b *strings.Builder, text string) {
	for part := range strings.SplitSeq(strings.Trim(text, "\n"), "\n\n") {
		if part == "" {
			continue
		}
		b.WriteString(".PP\n")
		verbatim := false
		for line := range strings.SplitSeq(part, "\n") {
			if indented := strings.HasPrefix(line, "  "); indented != verbatim {
				verbatim = indented
				b.WriteString(map[bool]string{true: ".nf\n", false: ".fi\n"}[indented])
			}
			b.WriteString(roff(line) + "\n")
		}
		if verbatim {
			b.WriteString(".fi\n")
		}
	}
}

var styles = regexp.MustCompile("\x1b\\[[0-9;]*m")

// roff makes a text one that roff shows as it is.
func roff(s string) string {
	s = styles.ReplaceAllString(s, "")
	s = strings.NewReplacer(`\`, `\e`, `-`, `\-`, "`", "\\(ga").Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}
