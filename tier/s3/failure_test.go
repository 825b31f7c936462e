package s3

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/s3test"
	"github.com/ringcache/ringcache/tier"
)

// hasty are options of a store that fails.
func hasty(url string) Options {
	o := options(url)
	o.Timeout, o.Retry = 300*time.Millisecond, 10*time.Millisecond
	return o
}

// backends runs a test with a store in memory, and with a real one.
func backends(t *testing.T, test func(t *testing.T, f *s3test.Faults)) {
	t.Run("memory", func(t *testing.T) { test(t, s3test.NewFaults(t, s3test.NewFake())) })
	t.Run("versitygw", func(t *testing.T) { test(t, s3test.NewFaults(t, s3test.Proxy(s3test.Start(t).Endpoint()))) })
}

// eventually waits until the store is up again.
func eventually(t *testing.T, l *Level, name string) {
	t.Helper()
	require.Eventually(t, func() bool { return get(t, l, name).Err == nil }, 2*time.Minute, 5*time.Millisecond)
}

// TestErrors: what each answer of a store means.
func TestErrors(t *testing.T) {
	_, faults, l := start(t)
	put(t, l, object("a", 1000))
	for _, c := range []struct {
		status int
		code   string
		is     error
		text   string
	}{
		{507, "XMinioStorageFull", tier.ErrFull, "lifecycle"},
		{403, "QuotaExceeded", tier.ErrFull, "quota"},
		{400, "EntityTooLarge", tier.ErrTooLarge, "EntityTooLarge"},
		{403, "AccessDenied", fs.ErrPermission, "ListBucket"},
		{403, "SignatureDoesNotMatch", fs.ErrPermission, "secret key"},
		{403, "RequestTimeTooSkewed", tier.ErrUnavailable, "clock"},
		{404, "NoSuchBucket", fs.ErrInvalid, "make the bucket"},
		{503, "SlowDown", tier.ErrUnavailable, "too much to do"},
		{500, "InternalError", tier.ErrUnavailable, "InternalError"},
	} {
		faults.Do(s3test.Status(c.status, c.code))
		for _, err := range []error{get(t, l, "a").Err, tryPut(t.Context(), l, object("b", 10))[0],
			l.Stat(t.Context(), []tier.Key{keyOf("a")})[0].Err, l.Delete(t.Context(), []tier.Key{keyOf("a")})[0]} {
			require.ErrorIs(t, err, c.is, c.code)
			require.ErrorContains(t, err, c.text, c.code)
			if c.is != tier.ErrFull && c.is != tier.ErrTooLarge {
				require.ErrorIs(t, err, tier.ErrUnavailable, c.code)
			}
		}
		faults.Do(nil)
		eventually(t, l, "a")
	}
	require.Zero(t, l.Usage().Corrupt)
}

// TestRetries: what fails now and then is repeated and not noticed, and a store that fails all the time gets no
// more than a bounded number of repetitions.
func TestRetries(t *testing.T) {
	backends(t, func(t *testing.T, f *s3test.Faults) {
		l := open(t, options(f.URL("p")))
		var n atomic.Int64
		failNow := func(every int64, fail s3test.Fault) s3test.Fault {
			return func(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
				return n.Add(1)%every == 0 && fail(w, r, next)
			}
		}
		cut := func(_ http.ResponseWriter, r *http.Request, _ http.Handler) bool {
			_, _ = io.Copy(io.Discard, r.Body)
			panic(http.ErrAbortHandler)
		}
		// The answer is lost, and the store has the object.
		lost := func(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
			next.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		for name, fail := range map[string]s3test.Fault{"503": s3test.Status(503, "SlowDown"), "cut": cut, "lost": lost} {
			f.Do(failNow(12, fail))
			for i := range 15 {
				put(t, l, object(fmt.Sprint(name, i), 10_000))
				require.NoError(t, get(t, l, fmt.Sprint(name, i)).Err)
			}
		}
		require.Positive(t, n.Load())
		n.Store(0)
		f.Do(failNow(1, s3test.Status(503, "SlowDown")))
		calls := 0
		for ; calls < 200; calls++ {
			require.ErrorIs(t, get(t, l, "cut1").Err, tier.ErrUnavailable)
		}
		require.Less(t, n.Load(), int64(budget*tries+20), "of 200 calls")
		f.Do(nil)
		eventually(t, l, "cut1")
	})
}

// TestWay: bytes that the way changes are never returned. If it changes them each time in the same way, nothing
// tells that from damage; otherwise the object stays.
func TestWay(t *testing.T) {
	backends(t, func(t *testing.T, f *s3test.Faults) {
		l := open(t, options(f.URL("p")))
		const size = 3 << 20
		put(t, l, object("a", size))
		for _, offset := range []int64{20, 30_000, size} {
			for _, to := range []bool{false, true} {
				f.Do(s3test.Change(offset, true))
				g := []tier.Get{{Key: keyOf("a")}}
				if to {
					g[0].To = io.Discard
				}
				l.Get(t.Context(), g)
				require.ErrorIs(t, g[0].Err, tier.ErrNotFound)
				require.ErrorIs(t, g[0].Err, tier.ErrCorrupt)
				f.Do(nil)
				require.NoError(t, get(t, l, "a").Err, "it was not removed: %v", g[0].Err)
			}
		}
		once := s3test.Change(size, true)
		var n atomic.Int64
		f.Do(func(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
			return n.Add(1) == 1 && once(w, r, next)
		})
		require.NoError(t, get(t, l, "a").Err, "the second read was right")
		require.EqualValues(t, 6, l.Usage().Corrupt)
	})
}

// TestSlowAnswer: an answer of one byte a time ends with the time limit.
func TestSlowAnswer(t *testing.T) {
	backends(t, func(t *testing.T, f *s3test.Faults) {
		l := open(t, hasty(f.URL("p")))
		require.Eventually(t, func() bool { return tryPut(t.Context(), l, object("a", 100_000))[0] == nil }, 2*time.Minute, time.Millisecond)
		f.Do(f.Slow(time.Second))
		for range 10 {
			require.ErrorIs(t, get(t, l, "a").Err, tier.ErrUnavailable)
		}
		f.Do(nil)
		eventually(t, l, "a")
	})
}

// TestHangingStore: after Failures limits nobody waits any more, and all is well when the store answers again.
func TestHangingStore(t *testing.T) {
	_, faults, _ := start(t)
	o := hasty(faults.URL("p"))
	o.Failures = 1
	l := open(t, o)
	require.Eventually(t, func() bool { return tryPut(t.Context(), l, object("a", 1000))[0] == nil }, 2*time.Minute, time.Millisecond)
	faults.Do(faults.Hang)
	require.ErrorIs(t, get(t, l, "a").Err, tier.ErrUnavailable)
	began, calls := time.Now(), 0
	for ; time.Since(began) < time.Second; calls++ {
		require.ErrorIs(t, get(t, l, "a").Err, tier.ErrUnavailable)
	}
	require.Greater(t, calls, 30)
	faults.Do(nil)
	eventually(t, l, "a")
}

// TestHurriedCaller: a short deadline is the caller's error, and does not take the store out of use.
func TestHurriedCaller(t *testing.T) {
	_, faults, l := start(t)
	put(t, l, object("a", 1000))
	faults.Do(func(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
		return strings.HasSuffix(r.URL.Path, "/a") && faults.Hang(w, r, next)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	g := []tier.Get{{Key: keyOf("a")}}
	l.Get(ctx, g)
	require.ErrorIs(t, g[0].Err, context.DeadlineExceeded)
	require.ErrorIs(t, get(t, l, "b").Err, tier.ErrNotFound)
}

// TestGoneBetweenParts: an object that goes, or is replaced, between its parts is a miss, and never a mixture.
func TestGoneBetweenParts(t *testing.T) {
	for _, replaced := range []bool{false, true} {
		fake, faults, _ := start(t)
		o := options(faults.URL("p"))
		o.PartSize = minPart
		l := open(t, o)
		put(t, l, object("a", 4*minPart), object("b", 4*minPart))
		key := l.settings.keyOf(keyOf("a"))
		other := fake.Get(l.settings.keyOf(keyOf("b")))
		faults.Do(func(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
			next.ServeHTTP(w, r)
			if replaced {
				fake.Set(key, other)
			} else {
				fake.Set(key, nil)
			}
			return true
		})
		for _, to := range []io.Writer{nil, io.Discard} {
			fake.Set(key, nil)
			faults.Do(nil)
			put(t, l, object("a", 4*minPart))
			faults.Do(func(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
				next.ServeHTTP(w, r)
				if replaced {
					fake.Set(key, other)
				} else {
					fake.Set(key, nil)
				}
				return true
			})
			g := []tier.Get{{Key: keyOf("a"), To: to}}
			l.Get(t.Context(), g)
			require.ErrorIs(t, g[0].Err, tier.ErrNotFound)
			faults.Do(nil)
			fake.Set(key, nil)
		}
	}
}

// TestFull: a full store answers ErrFull, serves what it has, and a large object leaves no parts.
func TestFull(t *testing.T) {
	fake, faults, _ := start(t)
	o := options(faults.URL("p"))
	o.PartSize = minPart
	l := open(t, o)
	fake.Room = 1 << 20
	put(t, l, object("a", 900_000))
	require.ErrorIs(t, tryPut(t.Context(), l, object("b", 900_000))[0], tier.ErrFull)
	require.ErrorIs(t, tryPut(t.Context(), l, object("c", 6*minPart))[0], tier.ErrFull)
	require.Zero(t, fake.Uploads())
	require.NoError(t, get(t, l, "a").Err)
	require.ErrorIs(t, get(t, l, "b").Err, tier.ErrNotFound)
	require.NoError(t, l.Delete(t.Context(), []tier.Key{keyOf("a")})[0])
	put(t, l, object("b", 900_000))
}

// TestLies: what a store announces and does not send costs neither memory nor a wrong byte.
func TestLies(t *testing.T) {
	fake, faults, l := start(t)
	put(t, l, object("a", 1000))
	value := fake.Get(l.settings.keyOf(keyOf("a")))
	answer := func(header map[string]string, status int, body []byte) s3test.Fault {
		return func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
			for k, v := range header {
				w.Header().Set(k, v)
			}
			w.WriteHeader(status)
			_, _ = w.Write(body)
			return true
		}
	}
	huge := makeHead(object("a", largest-2000), 0)
	whole := map[string]string{"ETag": `"x"`, "Last-Modified": "Sat, 28 Nov 2026 00:00:00 GMT"}
	with := func(k, v string) map[string]string {
		return map[string]string{"ETag": `"x"`, "Last-Modified": "Sat, 28 Nov 2026 00:00:00 GMT", k: v}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for name, fault := range map[string]s3test.Fault{
		"another part":   answer(with("Content-Range", "bytes 5-9/100"), 206, value),
		"no number":      answer(with("Content-Range", "bytes x"), 206, value),
		"longer object":  answer(with("Content-Range", fmt.Sprintf("bytes 0-%d/%d", len(value)-1, len(value)+7)), 206, value),
		"huge":           answer(with("Content-Range", fmt.Sprintf("bytes 0-%d/%d", len(huge)-1, largest-2000+len(huge))), 206, huge),
		"no object":      answer(whole, 200, []byte("<html>")),
		"nothing":        answer(nil, 204, nil),
		"redirect":       answer(map[string]string{"Location": "/elsewhere"}, 301, nil),
		"no XML":         answer(nil, 500, bytes.Repeat([]byte("x"), 1000)),
		"endless header": answer(with("X-Long", strings.Repeat("x", 1<<20)), 200, value),
	} {
		faults.Do(fault)
		require.Error(t, get(t, l, "a").Err, name)
		require.Error(t, l.Stat(t.Context(), []tier.Key{keyOf("a")})[0].Err, name)
		for _, err := range l.List(t.Context(), "") {
			require.Error(t, err, name)
		}
		faults.Do(nil)
		if fake.Get(l.settings.keyOf(keyOf("a"))) == nil { // it looked damaged both times
			put(t, l, object("a", 1000))
		}
		eventually(t, l, "a")
	}
	faults.Do(func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if !r.URL.Query().Has("list-type") {
			return false
		}
		fmt.Fprint(w, "<ListBucketResult>")
		for range 10_000 { // 20 MB
			fmt.Fprintf(w, "<Contents><Key>%s</Key></Contents>", strings.Repeat("k", 2000))
		}
		return true
	})
	var listErr error
	for _, err := range l.List(t.Context(), "") {
		listErr = err
	}
	require.ErrorIs(t, listErr, tier.ErrUnavailable)
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(400<<20))
}

// TestOpenRefuses: what can't work is refused at the start, with what to do.
func TestOpenRefuses(t *testing.T) {
	fake, faults, _ := start(t)
	_ = fake
	url := faults.URL("p")
	for name, c := range map[string]struct {
		o    Options
		is   error
		text string
	}{
		"no URL":       {Options{}, fs.ErrInvalid, "s3://bucket"},
		"scheme":       {options("http://x/y"), fs.ErrInvalid, "s3://"},
		"key in URL":   {options("s3://geheim@bucket/p"), fs.ErrInvalid, "credentials"},
		"bucket":       {options("s3://B/p"), fs.ErrInvalid, "bucket"},
		"parameter":    {options("s3://bucket?geheim=1"), fs.ErrInvalid, "unknown parameter"},
		"twice":        {options("s3://bucket?region=a&region=b"), fs.ErrInvalid, "more than once"},
		"endpoint":     {options("s3://bucket?endpoint=host:9000"), fs.ErrInvalid, "https://HOST"},
		"endpoint key": {options("s3://bucket?endpoint=http://a:geheim@h"), fs.ErrInvalid, "https://HOST"},
		"style":        {options("s3://bucket?path-style=x"), fs.ErrInvalid, "true or false"},
		"sse":          {options("s3://bucket?sse=x"), fs.ErrInvalid, "AES256"},
		"kms":          {options("s3://bucket?sse-kms-key=x"), fs.ErrInvalid, "aws:kms"},
		"ca":           {options("s3://bucket?endpoint=http://h&ca=/x"), fs.ErrInvalid, "https://"},
		"no ca":        {options("s3://bucket?ca=/none"), fs.ErrNotExist, "authorities"},
		"no file":      {options("s3://bucket?credentials=/none"), fs.ErrNotExist, "credentials"},
		"part":         {options("s3://bucket?part-size=5"), fs.ErrInvalid, "5242880"},
		"timeout":      {options("s3://bucket?timeout=5"), fs.ErrInvalid, "5s"},
		"prefix":       {options("s3://bucket/a/../b"), fs.ErrInvalid, "prefix"},
		"half":         {Options{URL: url, AccessKey: "x"}, fs.ErrInvalid, "belong together"},
		"no bucket":    {options(strings.Replace(url, s3test.Bucket, "other", 1)), fs.ErrInvalid, "make the bucket"},
		"plain":        {options(strings.Replace(url, "http://", "https://", 1)), fs.ErrInvalid, "http://"},
	} {
		_, err := Open(t.Context(), c.o)
		require.ErrorIs(t, err, c.is, name)
		require.ErrorContains(t, err, c.text, name)
		require.NotContains(t, err.Error(), "geheim", name)
	}
}

// TestCredentials: they come from the environment, from a file, and from a web identity, and their lack is an error.
func TestCredentials(t *testing.T) {
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_ACCESS_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_SECRET_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE",
		"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"} {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", t.TempDir())
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "")
	_, faults, _ := start(t)
	var seen atomic.Value
	faults.Do(func(_ http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		seen.Store(r.Header.Get("Authorization") + " " + r.Header.Get("X-Amz-Security-Token"))
		return false
	})
	t.Run("environment", func(t *testing.T) {
		t.Setenv("AWS_ACCESS_KEY_ID", "from-env")
		t.Setenv("AWS_SECRET_ACCESS_KEY", "x")
		t.Setenv("AWS_SESSION_TOKEN", "token")
		open(t, Options{URL: faults.URL("p"), Timeout: time.Minute})
		require.Contains(t, seen.Load(), "Credential=from-env/")
		require.Contains(t, seen.Load(), " token")
	})
	t.Run("file", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "credentials")
		require.NoError(t, os.WriteFile(file, []byte("[other]\naws_access_key_id = from-file\naws_secret_access_key = x\n"), 0o600))
		open(t, Options{URL: faults.URL("p") + "&profile=other&credentials=" + file, Timeout: time.Minute})
		require.Contains(t, seen.Load(), "Credential=from-file/")
	})
	t.Run("container", func(t *testing.T) {
		role := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"AccessKeyId":"from-role","SecretAccessKey":"x","Token":"t","Expiration":%q}`, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
		}))
		defer role.Close()
		t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", role.URL)
		l := open(t, Options{URL: faults.URL("p"), Timeout: time.Minute})
		require.Contains(t, seen.Load(), "Credential=from-role/")
		require.NoError(t, l.Close())
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	})
	t.Run("none", func(t *testing.T) {
		_, err := Open(t.Context(), Options{URL: faults.URL("p") + "&profile=missing", Timeout: time.Minute})
		require.ErrorIs(t, err, fs.ErrPermission)
		require.ErrorContains(t, err, "AWS_ACCESS_KEY_ID")
	})
}

// TestTLS with an authority of the store's own.
func TestTLS(t *testing.T) {
	server := httptest.NewTLSServer(s3test.NewFake())
	defer server.Close()
	url := "s3://" + s3test.Bucket + "/p?endpoint=" + server.URL
	_, err := Open(t.Context(), options(url))
	require.ErrorIs(t, err, fs.ErrPermission)
	require.ErrorContains(t, err, "ca in the URL")
	ca := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	l := open(t, options(url+"&ca="+ca))
	put(t, l, object("a", 100_000))
	require.NoError(t, get(t, l, "a").Err)
	require.NoError(t, l.Close())
}

// TestHeaders: encryption and storage class are passed on, of objects at once and in parts.
func TestHeaders(t *testing.T) {
	_, faults, _ := start(t)
	var mu sync.Mutex
	var class, sse, key []string
	faults.Do(func(_ http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if mu.Lock(); r.Method == http.MethodPut && r.URL.RawQuery == "" || r.URL.Query().Has("uploads") {
			class = append(class, r.Header.Get("X-Amz-Storage-Class"))
			sse = append(sse, r.Header.Get("X-Amz-Server-Side-Encryption"))
			key = append(key, r.Header.Get("X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id"))
		}
		mu.Unlock()
		return false
	})
	o := options(faults.URL("p") + "&sse=aws:kms&sse-kms-key=k1&storage-class=COLD")
	o.PartSize = minPart
	l := open(t, o)
	put(t, l, object("a", 1), object("b", 5*minPart))
	require.Equal(t, []string{"COLD", "COLD"}, class)
	require.Equal(t, []string{"aws:kms", "aws:kms"}, sse)
	require.Equal(t, []string{"k1", "k1"}, key)
}

// TestKilledStore: a real store that is killed, and one that is stopped, under load: no wrong byte, calls
// answer ErrUnavailable while it is away, and go on afterwards with what they had.
func TestKilledStore(t *testing.T) {
	s := s3test.Start(t)
	o := options(s.URL("p"))
	o.Timeout, o.Retry = 20*time.Second, 10*time.Millisecond
	l := open(t, o)
	put(t, l, object("kept", 100_000))
	var done, away atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var load sync.WaitGroup
	for range 4 {
		load.Go(func() {
			for ctx.Err() == nil {
				name := strconv.Itoa(rand.IntN(50))
				var err error
				if rand.IntN(2) == 0 {
					err = tryPut(ctx, l, object(name, 50_000))[0]
				} else {
					g := []tier.Get{{Key: keyOf(name)}}
					l.Get(ctx, g)
					if err = g[0].Err; err == nil && !bytes.Equal(content(name, 50_000), g[0].Bytes) {
						t.Errorf("wrong bytes of %s", name)
					}
				}
				switch {
				case err == nil:
					done.Add(1)
				case errors.Is(err, tier.ErrUnavailable):
					away.Add(1)
				case errors.Is(err, tier.ErrCorrupt):
					t.Errorf("%v", err)
				}
			}
		})
	}
	more := func(c *atomic.Int64, n int64) {
		t.Helper()
		n += c.Load()
		require.Eventually(t, func() bool { return c.Load() >= n }, 3*time.Minute, time.Millisecond)
	}
	for range 2 {
		more(&done, 100)
		s.Kill()
		more(&away, 100)
		s.Start()
		more(&done, 100)
	}
	cancel()
	load.Wait()
	eventually(t, l, "kept")
	require.Zero(t, l.Usage().Corrupt)

	o.Timeout, o.Failures = 200*time.Millisecond, 1
	h := open(t, o)
	eventually(t, h, "kept")
	s.Stop()
	require.ErrorIs(t, get(t, h, "kept").Err, tier.ErrUnavailable)
	began, calls := time.Now(), 0
	for ; time.Since(began) < time.Second; calls++ {
		require.ErrorIs(t, get(t, h, "kept").Err, tier.ErrUnavailable)
	}
	require.Greater(t, calls, 30, "nobody waits for a store that is stopped")
	s.Continue()
	eventually(t, h, "kept")
}
