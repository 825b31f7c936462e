package warm

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Limits of what is read and reported of an answer.
const (
	maxAnswer = 1 << 20 // bytes
	maxText   = 300     // bytes of an error's text
	maxAfter  = time.Minute
)

// endpoint is the OpenAI endpoint of an engine.
type endpoint struct {
	base    string // without a slash at the end
	key     string
	timeout time.Duration
	client  *http.Client
}

// parseURL returns the address of an endpoint without its path.
func parseURL(text string) (string, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		// err has the text, and it may have a password
		return "", errors.New("the URL of the engine can't be read: it is like http://127.0.0.1:8000")
	case u.User != nil:
		return "", errors.New("the URL of the engine has a user: give the key of the endpoint by itself")
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "", u.RawQuery != "", u.Fragment != "":
		return "", fmt.Errorf("the URL of the engine is %q: it is like http://127.0.0.1:8000", text)
	}
	return strings.TrimSuffix(strings.TrimRight(u.String(), "/"), "/v1"), nil
}

func newEndpoint(o Options) (*endpoint, error) {
	base, err := parseURL(o.URL)
	if err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = o.Concurrency
	return &endpoint{base: base, key: o.Key, timeout: o.Timeout, client: &http.Client{
		Transport: transport,
		// images and key go to nobody else
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

func (e *endpoint) close() { e.client.CloseIdleConnections() }

// answerError is an answer that is not the one hoped for.
type answerError struct {
	status int
	text   string
	after  time.Duration // that the server wants to be left alone
}

func (e *answerError) Error() string {
	return fmt.Sprintf("the engine answered %d %s: %s",
		e.status, http.StatusText(e.status), cmp.Or(e.text, "without a reason"))
}

// errNotOpenAI is an answer of something else.
var errNotOpenAI = errors.New("the answer is not that of an OpenAI endpoint: does the URL lead to an engine?")

// unreachableError is a request that never got to the engine.
type unreachableError struct{ error }

func (e unreachableError) Unwrap() error { return e.error }

// call sends a request and decodes the answer. Errors: an answerError, an unreachableError, errNotOpenAI,
// that of ctx, or that of a connection that broke.
func (e *endpoint) call(ctx context.Context, method, path string, body []byte, answer any) error {
	timed, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(timed, method, e.base+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if e.key != "" {
		req.Header.Set("Authorization", "Bearer "+e.key)
	}
	res, err := e.client.Do(req)
	if err != nil {
		return e.failed(ctx, err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil && res.StatusCode == http.StatusOK:
		return e.failed(ctx, err)
	case res.StatusCode != http.StatusOK:
		return &answerError{res.StatusCode, e.reason(text), retryAfter(res.Header.Get("Retry-After"))}
	case json.Unmarshal(text, answer) != nil: // also if it was cut
		return errNotOpenAI
	}
	return nil
}

// failed returns the error of a call without an answer.
func (e *endpoint) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %v", e.timeout)
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return unreachableError{err}
	}
	return fmt.Errorf("the connection broke: %w", err)
}

// encoded are runs of characters that are more likely bytes of an image than words.
var encoded = regexp.MustCompile(`[A-Za-z0-9+/=_-]{40,}|data:image[^\s"']*|\S{100,}`)

// reason returns what an answer says is wrong. What looks like an image or the key is taken out: servers
// repeat requests.
func (e *endpoint) reason(body []byte) string {
	var answer struct {
		Error   json.RawMessage
		Message string
		Detail  json.RawMessage
	}
	if len(body) > maxAnswer { // half of a key may be at its end
		body = body[:maxAnswer-len(e.key)]
	}
	text := string(body)
	if json.Unmarshal(body, &answer) == nil {
		var inner struct{ Message string }
		var word string
		switch {
		case json.Unmarshal(answer.Error, &word) == nil && word != "":
			text = word
		case json.Unmarshal(answer.Error, &inner) == nil && inner.Message != "":
			text = inner.Message
		case answer.Message != "":
			text = answer.Message
		case len(answer.Error) > 0:
			text = string(answer.Error)
		case len(answer.Detail) > 0:
			text = string(answer.Detail)
		}
	}
	text = encoded.ReplaceAllString(text, "(data)")
	if e.key != "" {
		text = strings.ReplaceAll(text, e.key, "(key)")
	}
	if len(text) > maxText {
		text = text[:maxText]
		for !utf8.ValidString(text) && len(text) > maxText-utf8.UTFMax {
			text = text[:len(text)-1]
		}
		text += "..."
	}
	text = strings.Join(strings.Fields(text), " ")
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) || !utf8.ValidString(text) {
		return strconv.Quote(text) // a terminal would obey it
	}
	return text
}

// retryAfter returns the time of the header Retry-After, which is in seconds or a date; 0 without one.
func retryAfter(text string) time.Duration {
	d := time.Duration(0)
	if s, err := strconv.ParseUint(text, 10, 31); err == nil {
		d = time.Duration(s) * time.Second
	} else if t, err := http.ParseTime(text); err == nil {
		d = time.Until(t)
	}
	return max(0, min(d, maxAfter))
}

// model returns the name of the engine's model: the first in its list that is no adapter of another.
func (e *endpoint) model(ctx context.Context) (string, error) {
	var list struct {
		Data []struct{ ID, Parent string }
	}
	if err := e.call(ctx, http.MethodGet, "/v1/models", nil, &list); err != nil {
		return "", err
	}
	for _, m := range list.Data {
		if m.ID != "" && m.Parent == "" {
			return m.ID, nil
		}
	}
	return "", errNotOpenAI
}

// show sends an image. The engine has computed, or found, its output when show returns nil.
func (e *endpoint) show(ctx context.Context, model, prompt, media string, image []byte) error {
	var answer struct {
		Choices []json.RawMessage
	}
	err := e.call(ctx, http.MethodPost, "/v1/chat/completions", message(model, prompt, media, image), &answer)
	if err == nil && len(answer.Choices) == 0 {
		return errNotOpenAI
	}
	return err
}

// message returns the body of a request. The image is written into it, without another copy in between.
func message(model, prompt, media string, image []byte) []byte {
	quote := func(s string) string {
		b, _ := json.Marshal(s) // a string can always be encoded
		return string(b)
	}
	head := `{"model":` + quote(model) + `,"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:` + media + `;base64,`
	tail := `"}},{"type":"text","text":` + quote(prompt) + `}]}],"max_tokens":1,"temperature":0,"stream":false}`
	b := make([]byte, 0, len(head)+base64.StdEncoding.EncodedLen(len(image))+len(tail))
	b = append(b, head...)
	b = base64.StdEncoding.AppendEncode(b, image)
	return append(b, tail...)
}
