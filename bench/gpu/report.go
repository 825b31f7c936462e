package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"time"
)

// report is the JSON file.
type report struct {
	// Notice is a sentence for readers who see only the file.
	Notice   string       `json:"notice"`
	Began    time.Time    `json:"began"`
	Seconds  float64      `json:"seconds"`
	Options  options      `json:"options"`
	Machine  machine      `json:"machine"`
	Copies   []copied     `json:"copies"`
	Derived  []derived    `json:"derived"`
	Overlap  []overlap    `json:"overlap"`
	Pinning  []pinning    `json:"pinning"`
	Together []together   `json:"processes"`
	Context  *contextCost `json:"context,omitempty"`
	Correct  *correct     `json:"correctness,omitempty"`
	Control  *control     `json:"negative_control,omitempty"`
	// LeftOut is what was not measured, and why.
	LeftOut []leftOut `json:"left_out"`
	// Failed is what ended with an error. What was measured before is above.
	Failed []leftOut `json:"failed"`
}

type leftOut struct {
	What   string `json:"what"`
	Reason string `json:"reason"`
}

func newReport(o options) *report {
	return &report{
		Began: time.Now().UTC(), Options: o, Machine: thisMachine(),
		// JSON has lists, also where they are empty.
		Copies: []copied{}, Derived: []derived{}, Overlap: []overlap{}, Pinning: []pinning{}, Together: []together{},
		LeftOut: []leftOut{}, Failed: []leftOut{},
	}
}

func (r *report) leaveOut(what, reason string) {
	r.LeftOut = append(r.LeftOut, leftOut{what, reason})
}

// write writes the report and its charts. Without a folder it does nothing.
func (r *report) write(folder string, plots bool) error {
	if folder == "" {
		return nil
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "results.json"), append(text, '\n'), 0o644); err != nil {
		return err
	}
	if !plots {
		return nil
	}
	for name, c := range r.charts() {
		if err := os.WriteFile(filepath.Join(folder, name+".svg"), c.SVG(), 0o644); err != nil {
			return err
		}
	}
	return nil
}
