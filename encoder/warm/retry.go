package warm

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"
)

const longestWait = 30 * time.Second

// again calls send until the engine has answered, or there is no use in trying again.
func (r *run) again(ctx context.Context, path string, send func() error) error {
	wait, tries := r.first, 0
	var since time.Time // when this image first met an engine that was away
	for {
		err := send()
		if ctx.Err() != nil && err != nil {
			return ctx.Err()
		}
		after := time.Duration(0)
		switch kind, a := classify(err); kind {
		case done:
			r.heard()
			return nil
		case bad:
			r.heard()
			return err
		case hopeless:
			if a, ok := errors.AsType[*answerError](err); ok &&
				(a.status == http.StatusUnauthorized || a.status == http.StatusForbidden) {
				err = fmt.Errorf("%w (is the key of the endpoint right?)", err)
			}
			return stopError{err}
		case broken:
			if tries++; tries == maxTries {
				return fmt.Errorf("given up after %d tries: %w", tries, err)
			}
		case away:
			if silent := r.silent(); silent > r.Patience {
				return stopError{
					fmt.Errorf("the engine has not worked for %v; what it has answered until then is done: %w",
						silent.Round(time.Millisecond), err),
				}
			}
			if since.IsZero() {
				since = time.Now()
			} else if time.Since(since) > r.Patience { // others come through
				return fmt.Errorf("given up after %v: %w", time.Since(since).Round(time.Millisecond), err)
			}
			after = a
		}
		d := max(wait/2+rand.N(wait/2+1), after) // so that many do not come back at the same time
		wait = min(2*wait, longestWait)
		r.report(Event{Path: path, Err: err, Wait: d})
		if err := sleep(ctx, d); err != nil {
			return err
		}
	}
}

// kind is what an answer means for the image: whether it is done, is tried again, or is given up, and whether
// the run goes on with others.
type kind int

const (
	done     kind = iota
	bad           // the engine does not take this image, which is given up
	broken        // the engine failed, perhaps because of this image, which is tried maxTries times
	away          // the engine is not there, or is busy: not because of this image, which is tried for Options.Patience
	hopeless      // it would be the same for each image, so the run ends
)

// classify returns what an answer means, and how long the engine wants nobody to ask again.
func classify(err error) (k kind, after time.Duration) {
	if err == nil {
		return done, 0
	}
	if _, ok := errors.AsType[unreachableError](err); ok {
		return away, 0
	}
	if errors.Is(err, errNotOpenAI) || ofTLS(err) {
		return hopeless, 0
	}
	answer, ok := errors.AsType[*answerError](err)
	if !ok {
		return broken, 0
	}
	switch answer.status {
	// the last one is a proxy's, while the engine starts
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusBadGateway:
		return away, answer.after
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed:
		return hopeless, 0
	case http.StatusRequestTimeout:
		return broken, 0
	}
	switch {
	case answer.status >= http.StatusInternalServerError:
		return broken, 0
	case answer.status >= http.StatusBadRequest:
		return bad, 0
	}
	return hopeless, 0 // it leads elsewhere, or is no answer at all
}

// ofTLS reports an error of the encryption, which is the same each time.
func ofTLS(err error) bool {
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	_, record := errors.AsType[tls.RecordHeaderError](err)
	return certificate || record || errors.Is(err, http.ErrSchemeMismatch)
}

// heard notes that the engine works.
func (r *run) heard() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.away = time.Time{}
}

// silent notes that the engine does not work, and returns for how long.
func (r *run) silent() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.away.IsZero() {
		r.away = time.Now()
	}
	return time.Since(r.away)
}

func (r *run) report(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Report(e)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
