// Command pictures draws the diagrams of a folder: for each FILE.d2 a FILE.svg, with colours for light and dark.
//
//	pictures FOLDER
//
// See docs/decisions.md, "Pictures are drawn from texts, and kept beside them".
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"oss.terrastruct.com/d2/d2graph"
	"oss.terrastruct.com/d2/d2layouts/d2dagrelayout"
	"oss.terrastruct.com/d2/d2lib"
	"oss.terrastruct.com/d2/d2renderers/d2svg"
	"oss.terrastruct.com/d2/d2themes/d2themescatalog"
	"oss.terrastruct.com/d2/lib/log"
	"oss.terrastruct.com/d2/lib/textmeasure"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: pictures FOLDER")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

func run(folder string) error {
	sources, err := filepath.Glob(filepath.Join(folder, "*.d2"))
	if err != nil {
		return err
	}
	if len(sources) == 0 {
		return fmt.Errorf("%s has no *.d2", folder)
	}
	for _, source := range sources {
		picture, err := draw(source)
		if err != nil {
			return fmt.Errorf("%s: %w", source, err)
		}
		if err := os.WriteFile(strings.TrimSuffix(source, ".d2")+".svg", picture, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// draw returns the picture of a diagram. It is the same each time.
func draw(source string) ([]byte, error) {
	text, err := os.ReadFile(source)
	if err != nil {
		return nil, err
	}
	ruler, err := textmeasure.NewRuler()
	if err != nil {
		return nil, err
	}
	pad := int64(20)
	render := &d2svg.RenderOpts{ThemeID: &d2themescatalog.NeutralDefault.ID, DarkThemeID: &d2themescatalog.DarkMauve.ID, Pad: &pad}
	ctx := log.With(context.Background(), slog.New(slog.NewTextHandler(io.Discard, nil))) // its errors are returned, too
	diagram, _, err := d2lib.Compile(ctx, string(text), &d2lib.CompileOptions{
		Ruler:          ruler,
		LayoutResolver: func(string) (d2graph.LayoutGraph, error) { return d2dagrelayout.DefaultLayout, nil },
	}, render)
	if err != nil {
		return nil, err
	}
	return d2svg.Render(diagram, render)
}
