package linear

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

// Options are those of [Check].
type Options struct {
	// Dir is the folder in which the page of a history that nothing explains is written. The
	// folder must exist. If Dir is empty, it is the folder of temporary files.
	Dir string
	// Timeout bounds the search for an order; 0 is five minutes.
	Timeout time.Duration
}

// ErrUnknown is wrapped by the error of a search that took longer than its timeout.
var ErrUnknown = errors.New("no order was found and none excluded in time; record fewer calls, or fewer that overlap")

// Violation is a history that no order of its calls explains.
type Violation struct {
	Calls int
	// Page is the file that shows the history, "" if it could not be written: then Err is the reason.
	Page string
	Err  error
}

// Error names the page that shows the history.
func (v *Violation) Error() string {
	page := "see " + v.Page + " in a browser"
	if v.Err != nil {
		page = "the page that shows it could not be written: " + v.Err.Error()
	}
	return fmt.Sprintf("linear: no order explains this history of %d calls; %s", v.Calls, page)
}

// Unwrap returns Err, nil if the page was written.
func (v *Violation) Unwrap() error { return v.Err }

// Check returns a [*Violation] if no order of the calls explains the history.
func Check(model porcupine.Model, history []porcupine.Operation, o Options) error {
	if o.Timeout == 0 {
		o.Timeout = 5 * time.Minute
	}
	switch result, info := porcupine.CheckOperationsVerbose(model, history, o.Timeout); result {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return fmt.Errorf("linear: a history of %d calls: %w", len(history), ErrUnknown)
	default:
		v := &Violation{Calls: len(history)}
		v.Page, v.Err = page(model, info, o.Dir)
		return v
	}
}

func page(model porcupine.Model, info porcupine.LinearizationInfo, dir string) (name string, err error) {
	f, err := os.CreateTemp(dir, "history-*.html")
	if err != nil {
		return "", err
	}
	return f.Name(), errors.Join(porcupine.Visualize(model, info, f), f.Close())
}
