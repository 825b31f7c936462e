package s3

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"net/http"
	"sync/atomic"

	"github.com/minio/minio-go/v7"

	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/internal/remote"
)

// Put stores objects, several at a time, but a parent before its children, and one of From when all before it
// have been sent. Bytes are sent from where they are, and those of From are read into memory first. The store
// keeps what it has already.
//
// What another call of this level is storing is tier.ErrPending; of what another process is storing the first
// is kept.
//
// When a time limit or a connection ends a Put, the store may still keep the object, whole.
func (l *Level) Put(ctx context.Context, puts []tier.Put) {
	if l.calls.Closed() { // a call that has just ended may still have its claims
		for i := range puts {
			puts[i].Err = errClosed
		}
		return
	}
	claims := l.pending.Claims()
	defer claims.Release()
	for i := range puts {
		p := &puts[i]
		if p.Err = acceptable(p); p.Err == nil && !claims.Add(p.Object.Key) {
			p.Err = isPending(p.Object.Key)
		}
	}
	for len(puts) > 0 {
		n := independent(puts)
		done, err := l.each(ctx, n, func(i int) {
			if puts[i].Err == nil {
				puts[i].Err = l.put(ctx, &puts[i])
			}
		})
		if err != nil {
			for i := range puts[done:] {
				if p := &puts[done+i]; p.Err == nil {
					p.Err = err
				}
			}
			return
		}
		puts = puts[n:]
	}
}

// independent returns how many of the first objects can be stored in any order: none is the parent of another
// one or has its key, and none is read from a stream, unless it is alone.
func independent(puts []tier.Put) int {
	if puts[0].From != nil {
		return 1
	}
	before := map[tier.Key]bool{puts[0].Object.Key: true}
	for i := 1; i < len(puts); i++ {
		o := puts[i].Object
		if parent, ok := o.ParentKey(); puts[i].From != nil || before[o.Key] || ok && before[parent] {
			return i
		}
		before[o.Key] = true
	}
	return len(puts)
}

func acceptable(p *tier.Put) error {
	if err := p.Object.Validate(); err != nil {
		return err
	}
	if most := int64(largest - headLength(p.Object)); p.Object.Size > most {
		return fmt.Errorf("tier/s3: object %v has %d bytes, the most is %d: %w", p.Object.Key, p.Object.Size, most, tier.ErrTooLarge)
	}
	if p.From == nil && int64(len(p.Bytes)) != p.Object.Size {
		return fmt.Errorf("tier/s3: object %v has %d bytes, and %d were given: %w", p.Object.Key, p.Object.Size,
			len(p.Bytes), fs.ErrInvalid)
	}
	return nil
}

// value is what an object of the bucket has: a head and bytes.
type value struct{ head, body []byte }

func (v value) size() int64 { return int64(len(v.head) + len(v.body)) }

// part returns the bytes of a part.
func (v value) part(from, to int64) io.Reader {
	head := int64(len(v.head))
	if from >= head {
		return bytes.NewReader(v.body[from-head : to-head])
	}
	return io.MultiReader(bytes.NewReader(v.head[from:min(to, head)]), bytes.NewReader(v.body[:max(0, to-head)]))
}

// put stores one object.
func (l *Level) put(ctx context.Context, p *tier.Put) error {
	o := p.Object
	release, err := l.calls.Reserve(ctx, o.Size)
	if err != nil {
		return err
	}
	defer release()
	v := value{body: p.Bytes}
	if p.From != nil {
		v.body = make([]byte, o.Size)
		if err := remote.ReadExactly(p.From, v.body, o.Key); err != nil {
			return fmt.Errorf("tier/s3: %w", err)
		}
	}
	sum := crc32.Checksum(v.body, castagnoli)
	v.head = makeHead(o, sum)
	sum = combine(crc32.Checksum(v.head, castagnoli), sum, o.Size)
	key := l.settings.keyOf(o.Key)
	for range 3 {
		// After a conflict with another write, and after an answer that was lost, the object may be there; what
		// is in the way may also be damaged, or gone by now.
		conditional := !l.unconditional.Load()
		if !conditional {
			if free, err := l.free(ctx, o.Key, key); err != nil || !free {
				return err
			}
		}
		err := l.write(ctx, key, v, sum, conditional)
		switch {
		case isCode(err, http.StatusNotImplemented) && conditional:
			l.unconditional.Store(true)
			continue
		case !isCode(err, http.StatusPreconditionFailed) && !isCode(err, http.StatusConflict) && !isUploadGone(err):
			return err
		}
		if free, err := l.free(ctx, o.Key, key); err != nil || !free {
			return err
		}
	}
	return fmt.Errorf("tier/s3: object %v: another client stores and removes it all the time: %w", o.Key, tier.ErrUnavailable)
}

// isCode reports whether the store answered with an HTTP status.
func isCode(err error, status int) bool {
	r, ok := response(err)
	return ok && r.StatusCode == status
}

// isUploadGone reports whether a multipart upload has ended: by a request whose answer was lost, say.
func isUploadGone(err error) bool {
	r, ok := response(err)
	return ok && r.Code == "NoSuchUpload"
}

// free reports whether the place of an object is free. What is damaged there is removed. If something there is
// not the level's, it returns fs.ErrExist.
func (l *Level) free(ctx context.Context, k tier.Key, key string) (bool, error) {
	_, etag, err := l.lookUp(ctx, k)
	switch {
	case err == nil:
		return false, nil
	case errors.Is(err, errMissing):
		return true, nil
	case errors.As(err, new(errUnstable)):
		return false, fmt.Errorf("tier/s3: object %v: %w: %w", k, err, tier.ErrUnavailable)
	case errors.As(err, new(errDamaged)):
		_ = l.miss(ctx, k, key, etag, err)
		return true, nil
	case errors.As(err, new(errForeign)):
		l.corrupt.Add(1)
		return false, fmt.Errorf("tier/s3: object %v: another program's object is in its place: %w: %w", k, err, fs.ErrExist)
	}
	return false, err
}

// options are those of a write. A condition is a part of the last request alone.
func (l *Level) options(conditional bool) minio.PutObjectOptions {
	o := minio.PutObjectOptions{ServerSideEncryption: l.settings.encryption, StorageClass: l.settings.storageClass,
		// The bytes have a checksum in a header that is signed: a second one in front of each part would be
		// computed for nothing.
		DisableContentSha256: true}
	if conditional {
		o.SetMatchETagExcept("*")
	}
	return o
}

// write writes an object of the bucket, with conditional only if there is none.
func (l *Level) write(ctx context.Context, key string, v value, sum uint32, conditional bool) error {
	if v.size() > multipart*l.settings.PartSize {
		return l.writeParts(ctx, key, v, conditional)
	}
	o := l.options(conditional)
	o.UserMetadata = map[string]string{"x-amz-checksum-crc32c": base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, sum))}
	return l.do(ctx, v.size(), func(ctx context.Context) error {
		_, err := l.client.PutObject(ctx, l.settings.bucket, key, v.part(0, v.size()), v.size(), "", "", o)
		return err
	})
}

// writeParts writes an object in parts, several at a time. After an error it ends the upload, so that the parts
// take no room.
func (l *Level) writeParts(ctx context.Context, key string, v value, conditional bool) (err error) {
	bucket, size := l.settings.bucket, l.settings.PartSize
	var id string
	err = l.do(ctx, 0, func(ctx context.Context) error {
		id, err = l.client.NewMultipartUpload(ctx, bucket, key, l.options(false))
		return err
	})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil { // also if ctx has ended
			_ = l.do(context.WithoutCancel(ctx), 0, func(ctx context.Context) error {
				return l.client.AbortMultipartUpload(ctx, bucket, key, id)
			})
		}
	}()
	parts := make([]minio.CompletePart, (v.size()+size-1)/size)
	var next atomic.Int64
	var failed atomic.Pointer[error]
	l.together(len(parts), func(bool) {
		for failed.Load() == nil {
			i := next.Add(1) - 1
			if i >= int64(len(parts)) {
				return
			}
			from, to := i*size, min((i+1)*size, v.size())
			err := l.do(ctx, to-from, func(ctx context.Context) error {
				p, err := l.client.PutObjectPart(ctx, bucket, key, id, int(i)+1, v.part(from, to), to-from,
					minio.PutObjectPartOptions{DisableContentSha256: true})
				parts[i] = minio.CompletePart{PartNumber: int(i) + 1, ETag: p.ETag}
				return err
			})
			if err != nil {
				failed.CompareAndSwap(nil, &err)
			}
		}
	})
	if err := failed.Load(); err != nil {
		return *err
	}
	return l.do(ctx, 0, func(ctx context.Context) error {
		_, err := l.client.CompleteMultipartUpload(ctx, bucket, key, id, parts, l.options(conditional))
		return err
	})
}
