package daemon

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"io/fs"
	"net/http"
	"strings"

	"github.com/ringcache/ringcache/daemon/internal/page"
	"github.com/ringcache/ringcache/internal/passwordfile"
)

// secret is a text that is never printed. It is behind a pointer, since package fmt shows the fields of a
// struct without asking their methods. The zero value is none.
type secret struct{ text *string }

func secretOf(text string) secret {
	if text == "" {
		return secret{}
	}
	return secret{&text}
}

// reveal returns the text.
func (s secret) reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// String implements fmt.Stringer.
func (secret) String() string { return "(secret)" }

// MarshalText implements encoding.TextMarshaler, for logs.
func (secret) MarshalText() ([]byte, error) { return []byte("(secret)"), nil }

// maxKeys bounds the keys of HTTP: two are enough for a change.
const maxKeys = 16

// httpKeys returns the keys that HTTP asks for; none is that it asks for none.
func httpKeys(c Config) (keys []secret, err error) {
	for _, file := range c.HTTPKeyFile {
		text, err := passwordfile.Read(file)
		if err != nil {
			return nil, err
		}
		key := secretOf(strings.TrimSpace(text))
		if key == (secret{}) {
			return nil, fmt.Errorf("%s must contain one line, the key: %w", file, fs.ErrInvalid)
		}
		keys = append(keys, key)
	}
	if c.httpKey != (secret{}) {
		keys = append(keys, c.httpKey)
	}
	return keys, nil
}

// publicPaths say that the daemon lives and is ready, to probes, which have no key.
var publicPaths = map[string]bool{"/": true, "/healthcheck": true, "/healthz": true, "/readyz": true}

// withKeys lets only those in who have a key, as LMCache's clients send it: as a Bearer, or in a header of its own. To
// the page a browser may send it as a password, whatever the user: it sends that by itself from then on, also for other
// websites, so nothing that changes anything takes it so.
func withKeys(keys []secret, next http.Handler) http.Handler {
	if len(keys) == 0 {
		return next
	}
	sums := make([][sha256.Size]byte, len(keys))
	for i, k := range keys {
		sums[i] = sha256.Sum256([]byte(k.reveal()))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		scheme, bearer, _ := strings.Cut(q.Header.Get("Authorization"), " ")
		if !strings.EqualFold(scheme, "Bearer") {
			bearer = ""
		}
		looks := strings.HasPrefix(q.URL.Path, page.Path)
		if _, password, ok := q.BasicAuth(); ok && looks {
			bearer = password
		}
		given, own := sha256.Sum256([]byte(bearer)), sha256.Sum256([]byte(q.Header.Get("X-LMCache-API-Key")))
		known := 0 // all are compared, so that the time says nothing
		for i := range sums {
			known |= subtle.ConstantTimeCompare(sums[i][:], given[:]) | subtle.ConstantTimeCompare(sums[i][:], own[:])
		}
		if known == 0 && !publicPaths[q.URL.Path] {
			w.Header().Set("WWW-Authenticate", "Bearer")
			if looks {
				w.Header().Add("WWW-Authenticate", `Basic realm="ringcache: any user, the key as password", charset="UTF-8"`)
			}
			replyJSON(w, http.StatusUnauthorized, map[string]any{
				"detail": "there is no key, or another one: send Authorization: Bearer KEY, or X-LMCache-API-Key: KEY",
			})
			return
		}
		next.ServeHTTP(w, q)
	})
}
