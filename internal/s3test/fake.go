// Package s3test has stores for tests that speak S3: [Fake] in the test's own process, [Start] a real server
// over a folder (versitygw), and [Faults] in front of either, which fails as a test wants.
//
// The real server is built once, by scripts/fetch-s3-server.sh, without root. Tests that need it skip with the
// reason where it was not built.
package s3test

import (
	"bytes"
	"crypto/md5"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Bucket is the bucket that there is.
const Bucket = "objects"

// Fake is a store in memory, as a handler. It knows what a level asks for, checks no signature, and serves the
// bucket Bucket alone.
type Fake struct {
	mu      sync.Mutex
	objects map[string][]byte
	uploads map[string]map[int][]byte
	count   int
	calls   map[string]int

	// Room is the most bytes of all objects, if not 0.
	Room int
	// NoConditions makes it refuse If-None-Match, as stores do that do not know it; Ignore makes it overwrite.
	NoConditions, Ignore bool
}

// NewFake returns an empty store.
func NewFake() *Fake {
	return &Fake{objects: map[string][]byte{}, uploads: map[string]map[int][]byte{}, calls: map[string]int{}}
}

// Calls returns how often a method was called, such as PUT.
func (f *Fake) Calls(method string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[method]
}

// Set replaces an object; nil removes it.
func (f *Fake) Set(key string, value []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if value == nil {
		delete(f.objects, key)
		return
	}
	f.objects[key] = bytes.Clone(value)
}

// Get returns an object, or nil.
func (f *Fake) Get(key string) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	return bytes.Clone(f.objects[key])
}

// Keys returns the keys of all objects, in order.
func (f *Fake) Keys() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.objects))
}

// Uploads returns how many multipart uploads have not ended.
func (f *Fake) Uploads() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.uploads)
}

// Error writes an error as S3 does.
func Error(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>%s</Code><Message>%s</Message></Error>", code, code)
}

func etagOf(value []byte) string {
	sum := md5.Sum(value)
	return `"` + hex.EncodeToString(sum[:]) + `"`
}

// ServeHTTP answers a request.
func (f *Fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[r.Method]++
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	q := r.URL.Query()
	switch {
	case bucket != Bucket:
		Error(w, http.StatusNotFound, "NoSuchBucket")
	case r.Method == http.MethodGet && key == "" && q.Get("list-type") == "2":
		f.list(w, q)
	case r.Method == http.MethodGet:
		f.get(w, r, key)
	case r.Method == http.MethodDelete && q.Has("uploadId"):
		delete(f.uploads, q.Get("uploadId"))
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodDelete:
		if m := r.Header.Get("If-Match"); m != "" && m != etagOf(f.objects[key]) {
			Error(w, http.StatusPreconditionFailed, "PreconditionFailed")
			return
		}
		delete(f.objects, key)
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodPost && q.Has("uploads"):
		f.count++
		id := strconv.Itoa(f.count)
		f.uploads[id] = map[int][]byte{}
		fmt.Fprintf(w, "<InitiateMultipartUploadResult><UploadId>%s</UploadId></InitiateMultipartUploadResult>", id)
	case r.Method == http.MethodPut && q.Has("uploadId"):
		n, _ := strconv.Atoi(q.Get("partNumber"))
		if f.uploads[q.Get("uploadId")] == nil {
			Error(w, http.StatusNotFound, "NoSuchUpload")
			return
		}
		f.uploads[q.Get("uploadId")][n] = body
		w.Header().Set("ETag", etagOf(body))
	case r.Method == http.MethodPost && q.Has("uploadId"):
		parts := f.uploads[q.Get("uploadId")]
		if parts == nil {
			Error(w, http.StatusNotFound, "NoSuchUpload")
			return
		}
		var all []byte
		for _, n := range slices.Sorted(maps.Keys(parts)) {
			all = append(all, parts[n]...)
		}
		if f.put(w, r, key, all) {
			delete(f.uploads, q.Get("uploadId"))
			fmt.Fprintf(w, "<CompleteMultipartUploadResult><Bucket>%s</Bucket><Key>%s</Key><ETag>%s</ETag></CompleteMultipartUploadResult>", bucket, key, etagOf(all))
		}
	case r.Method == http.MethodPut:
		if f.put(w, r, key, body) {
			w.Header().Set("ETag", etagOf(body))
		}
	default:
		Error(w, http.StatusNotImplemented, "NotImplemented")
	}
}

// put stores an object, or answers why not. The lock is held.
func (f *Fake) put(w http.ResponseWriter, r *http.Request, key string, value []byte) bool {
	used := 0
	for _, v := range f.objects {
		used += len(v)
	}
	_, there := f.objects[key]
	sum := r.Header.Get("X-Amz-Checksum-Crc32c")
	truth := base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc32.Checksum(value, crc32.MakeTable(crc32.Castagnoli))))
	switch conditional := r.Header.Get("If-None-Match") == "*"; {
	case conditional && f.NoConditions:
		Error(w, http.StatusNotImplemented, "NotImplemented")
	case conditional && there && !f.Ignore:
		Error(w, http.StatusPreconditionFailed, "PreconditionFailed")
	case sum != "" && sum != truth:
		Error(w, http.StatusBadRequest, "BadDigest")
	case f.Room > 0 && used+len(value) > f.Room:
		Error(w, http.StatusInsufficientStorage, "XMinioStorageFull")
	default:
		f.objects[key] = value
		return true
	}
	return false
}

func (f *Fake) get(w http.ResponseWriter, r *http.Request, key string) {
	value, ok := f.objects[key]
	if !ok {
		Error(w, http.StatusNotFound, "NoSuchKey")
		return
	}
	if m := r.Header.Get("If-Match"); m != "" && m != etagOf(value) {
		Error(w, http.StatusPreconditionFailed, "PreconditionFailed")
		return
	}
	w.Header().Set("ETag", etagOf(value))
	w.Header().Set("Last-Modified", "Sat, 28 Nov 2026 00:00:00 GMT")
	var from, to int
	if n, _ := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to); n == 2 {
		if from >= len(value) {
			Error(w, http.StatusRequestedRangeNotSatisfiable, "InvalidRange")
			return
		}
		to = min(to+1, len(value))
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to-1, len(value)))
		w.Header().Set("Content-Length", strconv.Itoa(to-from))
		w.WriteHeader(http.StatusPartialContent)
		value = value[from:to]
	} else {
		w.Header().Set("Content-Length", strconv.Itoa(len(value)))
	}
	_, _ = w.Write(value)
}

type listed struct {
	Key  string
	Size int
}

func (f *Fake) list(w http.ResponseWriter, q url.Values) {
	most, err := strconv.Atoi(q.Get("max-keys"))
	if err != nil {
		most = 1000
	}
	var result struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		EncodingType          string
		IsTruncated           bool
		NextContinuationToken string `xml:",omitempty"`
		Contents              []listed
	}
	result.EncodingType = "url"
	after := max(q.Get("start-after"), q.Get("continuation-token"))
	for _, key := range slices.Sorted(maps.Keys(f.objects)) {
		if !strings.HasPrefix(key, q.Get("prefix")) || key <= after {
			continue
		}
		if len(result.Contents) == most {
			result.IsTruncated, result.NextContinuationToken = true, after
			break
		}
		result.Contents = append(result.Contents, listed{url.QueryEscape(key), len(f.objects[key])})
		after = key
	}
	_ = xml.NewEncoder(w).Encode(result)
}
