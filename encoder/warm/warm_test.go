package warm

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testKey = "sk-a/secret+key=="

// request is a chat request as an engine reads it.
type request struct {
	Model    string
	Messages []struct {
		Role    string
		Content []struct {
			Type  string
			Text  string
			Image struct{ URL string } `json:"image_url"`
		}
	}
	MaxTokens int `json:"max_tokens"`
	Stream    bool
}

// fakeEngine is an endpoint that counts images by their bytes. What answer returns as true has been answered by it.
type fakeEngine struct {
	*httptest.Server
	answer func(w http.ResponseWriter, r *http.Request, image []byte) bool

	mu   sync.Mutex
	seen map[string]int
	last request
}

const chatAnswer = `{"choices":[{"message":{"content":"a"},"finish_reason":"length"}]}`

func newEngine(t *testing.T, answer func(w http.ResponseWriter, r *http.Request, image []byte) bool) *fakeEngine {
	e := &fakeEngine{answer: answer, seen: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"lora","parent":"tiny"},{"id":"tiny","parent":null},{"id":"alias","parent":null}]}`)
	})
	mux.HandleFunc("POST /v1/chat/completions", e.chat)
	e.Server = httptest.NewServer(mux)
	t.Cleanup(e.Close)
	return e
}

func (e *fakeEngine) chat(w http.ResponseWriter, r *http.Request) {
	var q request
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusTeapot)
		return
	}
	_, text, _ := strings.Cut(q.Messages[0].Content[0].Image.URL, ";base64,")
	image, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		http.Error(w, err.Error(), http.StatusTeapot)
		return
	}
	e.mu.Lock()
	e.seen[string(image)]++
	e.last = q
	answer := e.answer
	e.mu.Unlock()
	if answer == nil || !answer(w, r, image) {
		_, _ = io.WriteString(w, chatAnswer)
	}
}

// times is how often an image came. The engine may still be busy with a request whose client has its answer.
func (e *fakeEngine) times(image []byte) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.seen[string(image)]
}

func (e *fakeEngine) requests() (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, k := range e.seen {
		n += k
	}
	return n
}

// png returns different bytes for each n that begin as a PNG does.
func png(n int) []byte { return fmt.Appendf([]byte("\x89PNG\r\n\x1a\n"), "pixels %d", n) }

func folder(t *testing.T, n int) (dir string, images []string) {
	dir = t.TempDir()
	for i := range n {
		path := filepath.Join(dir, fmt.Sprintf("%04d.png", i))
		require.NoError(t, os.WriteFile(path, png(i), 0o600))
		images = append(images, path)
	}
	return dir, images
}

func quick(e *fakeEngine) Options { return Options{URL: e.URL, first: time.Microsecond} }

func TestRunSendsEachImageOnce(t *testing.T) {
	_, images := folder(t, 30)
	e := newEngine(t, nil)
	var ended []string
	o := quick(e)
	o.Key, o.Prompt, o.Concurrency = testKey, `what "is" it?`, 3
	o.Report = func(v Event) { require.NoError(t, v.Err); ended = append(ended, v.Path) }
	keys := make(chan string, 64)
	e.answer = func(_ http.ResponseWriter, r *http.Request, _ []byte) bool {
		keys <- r.Header.Get("Authorization")
		return false
	}
	result, err := Run(t.Context(), images, o)
	require.NoError(t, err)
	require.Equal(t, Result{Model: "tiny", Sent: 30}, result, "the first model that is no adapter")
	require.ElementsMatch(t, images, ended)
	for i := range images {
		require.Equal(t, 1, e.times(png(i)), "bytes arrive as they are")
	}
	require.Equal(t, "Bearer "+testKey, <-keys)
	e.mu.Lock()
	last := e.last
	e.mu.Unlock()
	require.Equal(t, "tiny", last.Model)
	require.Equal(t, 1, last.MaxTokens)
	require.False(t, last.Stream)
	require.Equal(t, "user", last.Messages[0].Role)
	require.Equal(t, "image_url", last.Messages[0].Content[0].Type)
	require.Equal(t, "text", last.Messages[0].Content[1].Type)
	require.Equal(t, `what "is" it?`, last.Messages[0].Content[1].Text)
	require.True(t, strings.HasPrefix(last.Messages[0].Content[0].Image.URL, "data:image/png;base64,"))
}

func TestConcurrencyIsTheLimit(t *testing.T) {
	_, images := folder(t, 20)
	var now, most atomic.Int32
	var once sync.Once
	five := make(chan struct{})
	e := newEngine(t, func(_ http.ResponseWriter, r *http.Request, _ []byte) bool {
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		if n == 5 {
			once.Do(func() { close(five) })
		}
		select { // the first five wait for each other: with fewer at a time this would not end
		case <-five:
		case <-r.Context().Done():
		}
		return false
	})
	o := quick(e)
	o.Concurrency = 5
	_, err := Run(t.Context(), images, o)
	require.NoError(t, err)
	require.Equal(t, int32(5), most.Load())
}

func TestEqualImagesAreSentOnce(t *testing.T) {
	dir, images := folder(t, 1)
	for i := range 9 {
		path := filepath.Join(dir, fmt.Sprintf("copy%d.png", i))
		require.NoError(t, os.WriteFile(path, png(0), 0o600))
		images = append(images, path)
	}
	e := newEngine(t, nil)
	o := quick(e)
	o.Concurrency = 10
	result, err := Run(t.Context(), append(images, images...), o)
	require.NoError(t, err)
	require.Equal(t, Result{Model: "tiny", Sent: 1, Known: 19}, result)
	require.Equal(t, 1, e.requests())

	// If the one that is sent fails, so do those that wait for it, and no one is called known.
	e = newEngine(t, func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
		http.Error(w, `{"error":{"message":"cannot identify image file"}}`, http.StatusBadRequest)
		return true
	})
	o = quick(e)
	result, err = Run(t.Context(), images, o)
	require.NoError(t, err)
	require.Len(t, result.Failures, 10)
	require.Zero(t, result.Known)
}

func TestStateGoesOn(t *testing.T) {
	_, images := folder(t, 20)
	path := filepath.Join(t.TempDir(), "state")
	ctx, cancel := context.WithCancel(t.Context())
	var answered atomic.Int32
	e := newEngine(t, func(_ http.ResponseWriter, r *http.Request, _ []byte) bool {
		if answered.Add(1) <= 7 {
			return false
		}
		cancel() // as Ctrl-C does, while requests are under way
		<-r.Context().Done()
		return true
	})
	o := quick(e)
	o.State, o.Concurrency = path, 2
	result, err := Run(ctx, images, o)
	require.ErrorIs(t, err, context.Canceled)
	n := result.Sent
	require.GreaterOrEqual(t, n, 6, "all but the other one that was under way")
	require.LessOrEqual(t, n, 7)
	require.Empty(t, result.Failures, "an interrupted image has not failed")

	e = newEngine(t, nil)
	o.URL = e.URL
	result, err = Run(t.Context(), images, o)
	require.NoError(t, err)
	require.Equal(t, Result{Model: "tiny", Sent: 20 - n, Known: n}, result)
	require.Equal(t, 20-n, e.requests())

	// Another model has another cache.
	o.Model = "alias"
	result, err = Run(t.Context(), images[:3], o)
	require.NoError(t, err)
	require.Equal(t, Result{Model: "alias", Sent: 3}, result)
	o.Model = ""
	result, err = Run(t.Context(), images, o)
	require.NoError(t, err)
	require.Equal(t, 20, result.Known)

	// A file that has changed is another image.
	require.NoError(t, os.WriteFile(images[0], png(99), 0o600))
	result, err = Run(t.Context(), images, o)
	require.NoError(t, err)
	require.Equal(t, Result{Model: "tiny", Sent: 1, Known: 19}, result)
}

// TestBusyEngineIsWaitedFor: 429 and 503 come to everybody first, as often as the tries of a broken engine and more.
func TestBusyEngineIsWaitedFor(t *testing.T) {
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusBadGateway} {
		_, images := folder(t, 8)
		var times sync.Map
		e := newEngine(t, func(w http.ResponseWriter, _ *http.Request, image []byte) bool {
			n, _ := times.LoadOrStore(string(image), new(atomic.Int32))
			if n.(*atomic.Int32).Add(1) > maxTries+2 {
				return false
			}
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(status)
			return true
		})
		waits := 0
		o := quick(e)
		o.Report = func(v Event) {
			if v.Wait > 0 {
				waits++
			}
		}
		result, err := Run(t.Context(), images, o)
		require.NoError(t, err)
		require.Equal(t, 8, result.Sent)
		require.Equal(t, 8*(maxTries+2), waits)
	}
}

func TestRetryAfter(t *testing.T) {
	require.Equal(t, 3*time.Second, retryAfter("3"))
	require.Equal(t, maxAfter, retryAfter("86400"))
	require.Zero(t, retryAfter("-5"))
	require.Zero(t, retryAfter("soon"))
	require.Zero(t, retryAfter(""))
	require.Zero(t, retryAfter("Mon, 02 Jan 2006 15:04:05 GMT"))
	require.Equal(t, maxAfter, retryAfter(time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)))

	_, images := folder(t, 1)
	first := true
	e := newEngine(t, func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
		if first {
			first = false
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return true
		}
		return false
	})
	o := quick(e)
	o.Report = func(v Event) {
		if v.Err != nil {
			require.GreaterOrEqual(t, v.Wait, time.Second)
		}
	}
	result, err := Run(t.Context(), images, o)
	require.NoError(t, err)
	require.Equal(t, 1, result.Sent)
}

func TestFailuresAreOfTheirImages(t *testing.T) {
	dir, images := folder(t, 40)
	require.NoError(t, os.WriteFile(images[3], append(png(3), make([]byte, 2000)...), 0o600))
	require.NoError(t, os.Remove(images[5]))
	require.NoError(t, os.WriteFile(images[7], []byte("no image any more"), 0o600))
	images[9] = dir
	e := newEngine(t, func(w http.ResponseWriter, r *http.Request, image []byte) bool {
		switch {
		case bytes.Equal(image, png(11)):
			http.Error(w, `{"error":{"message":"cannot identify image file","type":"BadRequestError","code":400}}`, http.StatusBadRequest)
		case bytes.Equal(image, png(13)):
			http.Error(w, "boom", http.StatusInternalServerError)
		case bytes.Equal(image, png(15)):
			panic(http.ErrAbortHandler) // the connection breaks
		default:
			return false
		}
		return true
	})
	o := quick(e)
	o.MaxSize = 1000
	result, err := Run(t.Context(), images, o)
	require.NoError(t, err)
	require.Equal(t, 33, result.Sent)
	want := []struct {
		i    int
		text string
	}{
		{3, "more than the limit of 1000"}, {5, "no such file"}, {7, "no image"}, {9, "no file"},
		{11, "400 Bad Request: cannot identify image file"}, {13, "after 4 tries: the engine answered 500 Internal Server Error: boom"}, {15, "after 4 tries: the connection broke"},
	}
	require.Len(t, result.Failures, len(want))
	for n, w := range want {
		require.Equal(t, images[w.i], result.Failures[n].Path, "in order")
		require.ErrorContains(t, result.Failures[n].Err, w.text)
	}
	require.Equal(t, 1, e.times(png(11)), "a refusal is final")
	require.Equal(t, maxTries, e.times(png(13)))
	require.Equal(t, maxTries, e.times(png(15)))
}

func TestFileThatGrowsStaysBounded(t *testing.T) {
	_, images := folder(t, 1)
	data, media, err := read(images[0], int64(len(png(0))))
	require.NoError(t, err, "the limit itself is fine")
	require.Equal(t, "image/png", media)
	require.Equal(t, png(0), data)
	_, _, err = read(images[0], int64(len(png(0)))-1)
	require.ErrorContains(t, err, "limit")
	f, err := os.OpenFile(images[0], os.O_RDWR, 0)
	require.NoError(t, err)
	require.NoError(t, f.Truncate(1<<40)) // sparse
	require.NoError(t, f.Close())
	_, _, err = read(images[0], maxMaxSize)
	require.ErrorContains(t, err, "1.00 TiB", "it is not read")
}

// TestFileLongerThanItSeems: a file of /proc has the size 0, and so may one that grows meanwhile.
func TestFileLongerThanItSeems(t *testing.T) {
	if _, err := os.Stat("/proc/version"); err != nil {
		t.Skip("no /proc here")
	}
	_, _, err := read("/proc/version", 5)
	require.ErrorContains(t, err, "has 6 bytes, more than the limit of 5", "no more than that is read")
	_, _, err = read("/proc/version", 1<<20)
	require.ErrorIs(t, err, errNoImage)
}

func TestSlowEngine(t *testing.T) {
	_, images := folder(t, 2)
	stop := make(chan struct{})
	defer close(stop)
	e := newEngine(t, func(_ http.ResponseWriter, r *http.Request, image []byte) bool {
		if bytes.Equal(image, png(1)) {
			select {
			case <-stop:
			case <-r.Context().Done():
			}
		}
		return false
	})
	o := quick(e)
	o.Timeout = 300 * time.Millisecond
	result, err := Run(t.Context(), images, o)
	require.NoError(t, err)
	require.LessOrEqual(t, result.Sent, 1) // on a machine that is busy the other one may be late, too
	require.NotEmpty(t, result.Failures)
	last := result.Failures[len(result.Failures)-1]
	require.Equal(t, images[1], last.Path)
	require.ErrorContains(t, last.Err, "no answer within 300ms")
}

// TestEngineThatDies: an engine that goes and comes back on the same port is waited for.
func TestEngineThatDies(t *testing.T) {
	_, images := folder(t, 12)
	e := newEngine(t, nil)
	address := e.Listener.Addr().String()
	var once sync.Once
	died := make(chan struct{})
	e.answer = func(_ http.ResponseWriter, _ *http.Request, image []byte) bool {
		if e.requests() > 4 {
			once.Do(func() { close(died) })
			panic(http.ErrAbortHandler)
		}
		return false
	}
	o := quick(e)
	o.first = 10 * time.Millisecond
	o.Concurrency = 2
	back := make(chan struct{})
	refused := 0
	o.Report = func(v Event) {
		if v.Wait == 0 {
			return
		}
		if _, ok := errors.AsType[unreachableError](v.Err); ok {
			if refused++; refused == 3 {
				close(back)
			}
		}
	}
	var second *http.Server
	restarted := make(chan error, 1)
	go func() {
		<-died
		e.CloseClientConnections()
		_ = e.Listener.Close()
		<-back
		l, err := net.Listen("tcp", address)
		if err == nil {
			e.mu.Lock() // a request to the first one may still be under way
			e.answer = nil
			e.mu.Unlock()
			second = &http.Server{Handler: e.Config.Handler}
			go func() { _ = second.Serve(l) }()
		}
		restarted <- err
	}()
	result, err := Run(t.Context(), images, o)
	require.NoError(t, <-restarted)
	defer second.Close()
	require.NoError(t, err)
	require.Equal(t, Result{Model: "tiny", Sent: 12}, result)
}

func TestEngineThatStaysAwayEndsTheRun(t *testing.T) {
	_, images := folder(t, 5)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	url := "http://" + l.Addr().String()
	require.NoError(t, l.Close())
	o := Options{URL: url, first: time.Microsecond, Patience: time.Millisecond}
	_, err = Run(t.Context(), images, o)
	require.ErrorContains(t, err, "models are unknown: the engine has not worked for")
	require.ErrorContains(t, err, "connection refused")
	o.Model = "tiny"
	result, err := Run(t.Context(), images, o)
	require.ErrorContains(t, err, "connection refused")
	require.Empty(t, result.Failures, "it is not the images' fault")

	e := newEngine(t, func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
		http.Error(w, "busy", http.StatusTooManyRequests)
		return true
	})
	o.URL = e.URL
	result, err = Run(t.Context(), images, o)
	require.ErrorContains(t, err, "429 Too Many Requests: busy")
	require.Empty(t, result.Failures)
}

// TestStarvedImageFails: the engine works, and is too busy for one image only.
func TestStarvedImageFails(t *testing.T) {
	r := &run{Options: Options{first: time.Microsecond}.defaults(), failures: map[int]Failure{}}
	r.Patience = time.Millisecond
	busy := &answerError{status: http.StatusTooManyRequests}
	n := 0
	err := r.again(t.Context(), "x", func() error {
		n++
		r.heard() // another image has been answered
		return busy
	})
	require.ErrorIs(t, err, busy)
	require.ErrorContains(t, err, "given up after")
	_, all := errors.AsType[stopError](err)
	require.False(t, all)
	require.Greater(t, n, 1)
}

func TestWhatIsTheSameForAllImagesEndsTheRun(t *testing.T) {
	_, images := folder(t, 60)
	for name, c := range map[string]struct {
		answer func(w http.ResponseWriter, r *http.Request)
		want   string
		sent   int // at most
	}{
		"key": {func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, `{"error":"Unauthorized"}`, http.StatusUnauthorized)
		}, "401 Unauthorized: Unauthorized (is the key of the endpoint right?)", 1},
		"model": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }, "404 Not Found", 1},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusTemporaryRedirect)
		}, "307", 1},
		"page":       {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }, "not that of an OpenAI endpoint", 1},
		"no choices": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"choices":[]}`) }, "not that of an OpenAI endpoint", 1},
		"endless":    {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(bytes.Repeat([]byte(" "), maxAnswer+2)) }, "not that of an OpenAI endpoint", 1},
		"text model": {func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, `{"message":"tiny is not a multimodal model"}`, http.StatusBadRequest)
		}, "taken none of the first 16 images, so the rest are not sent. The last one: the engine answered 400 Bad Request: tiny is not a multimodal model", maxFailed},
		"broken": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }, "taken none of the first 16 images, so the rest are not sent. The last one: given up after 4 tries", maxFailed * maxTries},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t, func(w http.ResponseWriter, r *http.Request, _ []byte) bool { c.answer(w, r); return true })
			o := quick(e)
			o.Concurrency = 1
			_, err := Run(t.Context(), images, o)
			require.ErrorContains(t, err, c.want)
			require.LessOrEqual(t, e.requests(), c.sent)
		})
	}
	// Beside images that are taken, refused ones are failures of their own, however many.
	e := newEngine(t, func(w http.ResponseWriter, _ *http.Request, image []byte) bool {
		if bytes.Equal(image, png(0)) {
			return false
		}
		http.Error(w, "no", http.StatusBadRequest)
		return true
	})
	o := quick(e)
	o.Concurrency = 1
	result, err := Run(t.Context(), images, o)
	require.NoError(t, err)
	require.Len(t, result.Failures, 59)
}

// TestWrongEncryptionEndsTheRun: it would be the same for each image, and for each try.
func TestWrongEncryptionEndsTheRun(t *testing.T) {
	_, images := folder(t, 3)
	var asked atomic.Int32
	s := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	defer s.Close()
	for _, o := range []Options{{URL: s.URL}, {URL: s.URL, Model: "tiny"}, {URL: strings.Replace(newEngine(t, nil).URL, "http:", "https:", 1), Model: "tiny"}} {
		o.first = time.Hour // a second try would not end
		result, err := Run(t.Context(), images, o)
		require.Error(t, err)
		require.Empty(t, result.Failures)
		t.Log(err)
	}
	require.Zero(t, asked.Load())
}

// TestErrorsAreSilentAboutSecrets: servers repeat what they were sent in their errors, the header and the image.
func TestErrorsAreSilentAboutSecrets(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.png")
	image := append(png(0), bytes.Repeat([]byte{0xfb, 0xef, 1}, 500)...)
	require.NoError(t, os.WriteFile(path, image, 0o600))
	text := base64.StdEncoding.EncodeToString(image)
	for name, answer := range map[string]string{
		"fastapi": `{"detail":[{"loc":["body"],"msg":"bad","input":{"url":"data:image/png;base64,` + text + `"}}],"key":"` + testKey + `"}`,
		"openai":  `{"error":{"message":"cannot load data:image/png;base64,` + text + ` for Bearer ` + testKey + `","code":400}}`,
		"short":   `{"error":{"message":"cannot load data:image/png;base64,` + text[:30] + ` for Bearer ` + testKey + `","code":400}}`,
		"text":    "Authorization: Bearer " + testKey + "\n" + text,
		"key":     `{"error":"` + testKey + `"}`,
		"cut":     strings.Repeat("a", maxAnswer-len(testKey)+8) + " " + testKey,
		"python":  fmt.Sprintf("cannot identify %q", image[:300]),
		"late":    strings.Repeat("word ", maxText/5-2) + testKey, // cut in the middle of the key
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t, func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
				w.WriteHeader(http.StatusUnprocessableEntity)
				_, _ = io.WriteString(w, answer)
				return true
			})
			o := quick(e)
			o.Key = testKey
			result, err := Run(t.Context(), []string{path}, o)
			require.NoError(t, err)
			require.Len(t, result.Failures, 1)
			got := result.Failures[0].Err.Error()
			require.NotContains(t, got, testKey[:6])
			require.NotContains(t, got, text[:12])
			require.NotContains(t, got, `\xef`)
			require.NotContains(t, got, text[40:60])
			require.Less(t, len(got), 2*maxText)
			t.Log(got)
		})
	}
	err := Options{URL: "http://user:" + testKey[:5] + "@127.0.0.1"}.Validate()
	require.Error(t, err)
	require.NotContains(t, err.Error(), testKey[:5])
	err = Options{URL: "http://user:" + testKey[:5] + "@127.0.0.1:x%zz/"}.Validate()
	require.Error(t, err)
	require.NotContains(t, err.Error(), testKey[:5])
}

func TestReasonIsForATerminal(t *testing.T) {
	e := &endpoint{}
	require.Equal(t, `"\x1b[2Jaway"`, e.reason([]byte("\x1b[2Jaway")))
	require.Equal(t, "two lines", e.reason([]byte("two\n\tlines\n")))
	require.Equal(t, `said "no"`, e.reason([]byte(`said "no"`)))
	require.Equal(t, `back\slash`, e.reason([]byte(`back\slash`)))
	long := e.reason([]byte(strings.Repeat("ö ", 400)))
	require.LessOrEqual(t, len(long), maxText+3)
	require.True(t, strings.HasSuffix(long, "..."))
}

func TestOptionsAreValidated(t *testing.T) {
	require.NoError(t, Options{}.Validate())
	for want, o := range map[string]Options{
		"is like http://":        {URL: "127.0.0.1:8000"},
		"like http://127":        {URL: "ftp://127.0.0.1"},
		"URL of the engine is":   {URL: "http://127.0.0.1/?a=b"},
		"has a user":             {URL: "http://a@127.0.0.1"},
		"at most 256":            {Concurrency: 257},
		"-1 requests":            {Concurrency: -1},
		"images of up to -1":     {MaxSize: -1},
		"1073741825":             {MaxSize: 1<<30 + 1},
		"negative":               {Timeout: -1},
		"times can't":            {Patience: -1},
		"characters that a head": {Key: "a\n"},
		"at most 8192":           {Key: strings.Repeat("k", 8193)},
	} {
		require.ErrorContains(t, o.Validate(), want)
		_, err := Run(t.Context(), nil, o)
		require.ErrorContains(t, err, want)
	}
	for _, u := range []string{"http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/"} {
		base, err := parseURL(u)
		require.NoError(t, err)
		require.Equal(t, "http://h:1", base)
	}
	base, err := parseURL("https://h/engine/v1")
	require.NoError(t, err)
	require.Equal(t, "https://h/engine", base)
}

func TestStateThatCantBeWrittenEndsTheRun(t *testing.T) {
	_, images := folder(t, 3)
	e := newEngine(t, nil)
	o := quick(e)
	o.State = "/dev/full"
	_, err := Run(t.Context(), images, o)
	require.ErrorContains(t, err, "is no file")
	o.State = filepath.Join(t.TempDir(), "no", "folder")
	_, err = Run(t.Context(), images, o)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.Zero(t, e.requests())

	s := &state{model: "tiny", done: map[content]struct{}{}}
	s.file, err = os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no /dev/full here")
	}
	r := &run{Options: o.defaults(), state: s, failures: map[int]Failure{}}
	r.endpoint, err = newEndpoint(r.Options)
	require.NoError(t, err)
	defer r.endpoint.close()
	err = r.all(t.Context(), images)
	require.ErrorContains(t, err, "the state can't be written")
	require.Zero(t, r.result.Sent)
	require.NoError(t, s.close())
}
