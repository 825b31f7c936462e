package main

import (
	"fmt"
	"io"

	"github.com/schollz/progressbar/v3"

	"github.com/ringcache/ringcache/encoder/warm"
	"github.com/ringcache/ringcache/internal/terminal"
)

// warmView shows the progress of a run: by a bar on a terminal, by lines elsewhere.
type warmView struct {
	w       io.Writer
	total   int
	ended   int
	failed  int
	shown   int // twentieths that were printed as lines
	waiting string
	bar     *progressbar.ProgressBar // nil without a terminal
}

func newWarmView(w io.Writer, total int) *warmView {
	v := &warmView{w: w, total: total}
	if total > 0 {
		v.bar = newBar(w, total, "images", progressbar.OptionShowCount(), progressbar.OptionShowIts(),
			progressbar.OptionSetItsString("images"), progressbar.OptionOnCompletion(func() { fmt.Fprintln(w) }))
	}
	return v
}

// report shows an event. A view has no lock: events come one at a time.
func (v *warmView) report(e warm.Event) {
	if e.Wait > 0 {
		v.wait(e)
		return
	}
	v.ended++
	v.waiting = ""
	if e.Err != nil {
		v.failed++
	}
	if v.bar != nil {
		v.bar.Describe(v.text())
		_ = v.bar.Set(v.ended) // a closed terminal does not end the run
		return
	}
	if twentieth := v.ended * 20 / v.total; twentieth > v.shown {
		v.shown = twentieth
		fmt.Fprintf(v.w, "%s: %d of %d\n", v.text(), v.ended, v.total)
	}
}

// wait prints why the engine can't take images now, once for each reason until it works again.
func (v *warmView) wait(e warm.Event) {
	text := e.Err.Error()
	if text == v.waiting {
		return
	}
	v.waiting = text
	if v.bar != nil {
		v.bar.Describe("waiting")
		_ = v.bar.Clear()
	}
	fmt.Fprintf(v.w, "waiting for the engine: %s\n", terminal.Lines(text))
}

func (v *warmView) text() string {
	if v.failed > 0 {
		return fmt.Sprintf("images (%d failed)", v.failed)
	}
	return "images"
}

// end leaves the bar as it is, and the cursor below it.
func (v *warmView) end() {
	if v.bar != nil && !v.bar.IsFinished() {
		_ = v.bar.Exit()
		fmt.Fprintln(v.w)
	}
}
