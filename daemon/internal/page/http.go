package page

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"html/template"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/ringcache/ringcache/daemon/wire"
	"github.com/ringcache/ringcache/inspect"
	"github.com/ringcache/ringcache/internal/terminal"
	"github.com/ringcache/ringcache/tier"
)

// Paths of the page. Its links are relative, so that it can stand behind a proxy that has it elsewhere.
const (
	Path       = "/page/"
	StreamPath = Path + "events"
)

//go:embed static
var staticFiles embed.FS

const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// Handler answers what is below Path but for the stream, and Path without its slash. guarded reports that only those
// who have a key get to it, or that it is by TLS. Else it answers only under names that no website can have: addresses, and localhost.
func (p *Page) Handler(guarded bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /page", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "page/")
		w.WriteHeader(http.StatusMovedPermanently)
	})
	mux.HandleFunc("GET /page/{$}", p.index)
	mux.HandleFunc("GET /page/objects", p.objects)
	for name, kind := range map[string]string{
		"page.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml",
	} {
		b, err := staticFiles.ReadFile("static/" + name)
		if err != nil {
			panic(err) // it is embedded
		}
		mux.HandleFunc("GET "+Path+name, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.Header().Set("Cache-Control", "no-cache") // the next release has another one
			_, _ = w.Write(b)                           // to memory
		})
	}
	return safe(guarded, mux)
}

// safe sets the headers of all answers, and refuses names that another website may have made the daemon's: its
// scripts could read the page.
func safe(guarded bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		if !guarded && !isAddress(q.Host) {
			http.Error(w, "the page is answered under the address of the machine, or localhost; under any name if http-key-file or http-cert is set", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, q)
	})
}

// isAddress reports whether a host is an IP address or localhost, which no website can have.
func isAddress(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return host == "localhost" || net.ParseIP(host) != nil || len(host) > 2 && host[0] == '[' && net.ParseIP(host[1:len(host)-1]) != nil
}

func (p *Page) index(w http.ResponseWriter, _ *http.Request) {
	parts := map[string]template.HTML{}
	for i, x := range p.current() {
		parts[partNames[i]] = template.HTML(x.html) // made by a template
	}
	p.render(w, http.StatusOK, "index", map[string]any{"Title": "ringcache: " + terminal.Text(p.o.Segment), "Parts": parts})
}

func (p *Page) render(w http.ResponseWriter, status int, name string, v any) {
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, name, v); err != nil {
		p.o.Logger.Error("the page can't be rendered: please report this", "page", name, "error", err)
		http.Error(w, "the page can't be rendered", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // to memory
}

// objectsView is the answer to a search.
type objectsView struct {
	Title, Query, Space, Name string
	Problem                   string
	Found                     []inspect.Object
	Looked                    int
	More                      bool
	One                       *objectView
}

// objectView is one object.
type objectView struct {
	Key    tier.Key
	Levels []string
	Object tier.Object
	Note   string
	Error  string
	Leases []wire.Lease
}

const (
	mostQuery = tier.MaxSpace + 1 + tier.MaxName
	mostNote  = 500 // bytes that are shown
	findTime  = 10 * time.Second
)

// objects answers searches: for a part of a key in memory, and for one object in all levels.
func (p *Page) objects(w http.ResponseWriter, q *http.Request) {
	v := objectsView{Title: "ringcache: objects", Query: q.FormValue("q"), Space: q.FormValue("space"), Name: q.FormValue("name")}
	k := tier.Key{Space: v.Space, Name: v.Name}
	one := v.Space != "" || v.Name != ""
	status := http.StatusOK
	switch {
	case v.Query == "" && !one:
	case len(v.Query) > mostQuery, one && k.Validate() != nil:
		status, v.Problem = http.StatusBadRequest, "no object has such a key"
		v.Query = ""
	case p.o.Now().Levels == nil:
		status, v.Problem = http.StatusServiceUnavailable, "there is no store yet, or no more"
		v.Query = ""
	default:
		select {
		case p.turn <- struct{}{}:
			defer func() { <-p.turn }()
			ctx, cancel := context.WithTimeout(q.Context(), findTime)
			defer cancel()
			if one {
				v.One = p.find(ctx, k)
				break
			}
			var err error
			if v.Found, v.Looked, v.More, err = search(ctx, p.o.Segment, p.o.Dir, v.Query); err != nil {
				status, v.Problem = http.StatusInternalServerError, err.Error()
			}
		default:
			status, v.Problem = http.StatusServiceUnavailable, "another search is under way: try again in a moment"
			v.Query = ""
		}
	}
	p.render(w, status, "objects", v)
}

func (p *Page) find(ctx context.Context, k tier.Key) *objectView {
	found, leases := p.o.Find(ctx, k)
	v := &objectView{Key: k, Levels: found.Levels, Object: found.Object, Leases: leases}
	if found.Err != nil {
		v.Error = found.Err.Error()
	}
	if len(found.Object.Note) > 0 {
		v.Note = terminal.Text(cut(string(found.Object.Note), mostNote))
	}
	return v
}

const (
	patience   = 10 * time.Second // with a stream that takes nothing
	retryAfter = 15               // seconds until a page that is refused asks again
)

// Stream answers StreamPath with events that have the name of a part, and its HTML, until the client goes or Run
// ends. Its writer has to be that of net/http, and not one that keeps the answer until it is whole.
func (p *Page) Stream(guarded bool) http.Handler { return safe(guarded, http.HandlerFunc(p.stream)) }

func (p *Page) stream(w http.ResponseWriter, q *http.Request) {
	if q.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "only GET is answered", http.StatusMethodNotAllowed)
		return
	}
	wake, err := p.open()
	if err != nil {
		w.Header().Set("Retry-After", fmt.Sprint(retryAfter))
		http.Error(w, err.Error()+": try again later", http.StatusServiceUnavailable)
		return
	}
	defer p.leave(wake)
	out := http.NewResponseController(w)
	if err := out.SetReadDeadline(time.Time{}); err != nil { // that of the server ends a request after seconds
		http.Error(w, "this connection has no stream: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	var sent uint64
	parts := p.current()
	for {
		var b bytes.Buffer
		newest := sent
		for i, x := range parts {
			if x.version > sent {
				writeEvent(&b, partNames[i], x.html)
				newest = max(newest, x.version)
			}
		}
		sent = newest
		writeEvent(&b, "step", nil) // also shows that the stream lives
		if out.SetWriteDeadline(time.Now().Add(patience)) != nil {
			return
		}
		if _, err := w.Write(b.Bytes()); err != nil || out.Flush() != nil {
			return // it has gone, or takes nothing
		}
		select {
		case <-wake:
		case <-q.Context().Done():
			return
		case <-p.closed:
			return
		}
		p.mu.Lock()
		parts = p.parts
		p.mu.Unlock()
	}
}

// writeEvent writes an event. Both kinds of ends of lines are ends of a field there, so a text with them becomes
// several fields, and can't end the event.
func writeEvent(to io.Writer, name string, data []byte) {
	fmt.Fprintf(to, "event: %s\n", name)
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	data = bytes.ReplaceAll(data, []byte("\r"), []byte("\n"))
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		fmt.Fprintf(to, "data: %s\n", line)
	}
	_, _ = io.WriteString(to, "\n") // to memory
}
