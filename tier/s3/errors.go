package s3

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"slices"

	"github.com/minio/minio-go/v7"

	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/internal/remote"
)

// answers are the codes of a store's errors, what they mean, and what to do.
var answers = map[string]struct {
	is   error
	hint string
}{
	"AccessDenied":                 {fs.ErrPermission, "the policy of the user or of the bucket does not allow what the page of package tier/s3 lists; without ListBucket, S3 says so about each object that is not there"},
	"InvalidAccessKeyId":           {fs.ErrPermission, "check the access key"},
	"SignatureDoesNotMatch":        {fs.ErrPermission, "check the secret key, and the region"},
	"InvalidToken":                 {fs.ErrPermission, "check the session token"},
	"ExpiredToken":                 {fs.ErrPermission, "the session token has ended: a token from the environment is not renewed"},
	"AllAccessDisabled":            {fs.ErrPermission, "the store has closed the account"},
	"AccountProblem":               {fs.ErrPermission, "the store has closed the account"},
	"AuthorizationHeaderMalformed": {fs.ErrInvalid, "check region in the URL"},
	"PermanentRedirect":            {fs.ErrInvalid, "the bucket is elsewhere: check region and endpoint in the URL"},
	"NoSuchBucket":                 {fs.ErrInvalid, "make the bucket, or name another one"},
	"InvalidBucketName":            {fs.ErrInvalid, "name another bucket"},
	"RequestTimeTooSkewed":         {nil, "the clock of this machine and that of the store differ by more than 15 minutes: set them, by NTP say"},
	"SlowDown":                     {nil, "the store has too much to do"},
	"ServerSideEncryptionConfigurationNotFoundError": {fs.ErrInvalid, "the store does not know sse of the URL"},
	"KMS.NotFoundException":                          {fs.ErrInvalid, "check sse-kms-key in the URL"},
}

// isFull reports whether the store has no room.
func isFull(r minio.ErrorResponse) bool {
	return r.StatusCode == http.StatusInsufficientStorage || slices.Contains([]string{"QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded",
		"XMinioBucketQuotaExceeded", "InsufficientStorage", "StorageFull", "EntityQuotaExceeded"}, r.Code)
}

// explain turns an error of the client into one of package tier, with what to do. Errors that are not the
// client's stay as they are.
func explain(ctx context.Context, err error) error {
	var own callerError
	switch {
	case err == nil, errors.As(err, new(errDamaged)), errors.As(err, new(errForeign)), errors.Is(err, errMissing),
		errors.Is(err, errChanged), errors.Is(err, errLongerHead), errors.As(err, new(*needsMemory)):
		return err
	case errors.As(err, &own):
		return own.error
	}
	if ended := remote.EndOf(ctx); ended != nil {
		return ended
	}
	if r, ok := response(err); ok {
		a, known := answers[r.Code]
		switch {
		case isFull(r):
			return fmt.Errorf("tier/s3: %w: %w (the store or the bucket's quota is full: let objects expire earlier by the bucket's lifecycle, or raise the quota)", tier.ErrFull, describe(r))
		case r.Code == "EntityTooLarge":
			return fmt.Errorf("tier/s3: %w: %w", tier.ErrTooLarge, describe(r))
		case !known:
			return fmt.Errorf("tier/s3: %w: %w", tier.ErrUnavailable, describe(r))
		case a.is == nil:
			return fmt.Errorf("tier/s3: %w: %w (%s)", tier.ErrUnavailable, describe(r), a.hint)
		}
		return fmt.Errorf("tier/s3: %w: %w: %w (%s)", tier.ErrUnavailable, a.is, describe(r), a.hint)
	}
	var untrusted *tls.CertificateVerificationError
	switch {
	case errors.Is(err, errCredentials):
		return fmt.Errorf("tier/s3: %w: %w: %w", tier.ErrUnavailable, fs.ErrPermission, err)
	case errors.As(err, &untrusted):
		return fmt.Errorf("tier/s3: %w: %w: %w (name the authority, as ca in the URL or in Options.TLS)",
			tier.ErrUnavailable, fs.ErrPermission, err)
	case errors.As(err, new(tls.RecordHeaderError)), errors.Is(err, http.ErrSchemeMismatch):
		return fmt.Errorf("tier/s3: %w: %w: %w (the endpoint is not one for TLS: write http://)", tier.ErrUnavailable, fs.ErrInvalid, err)
	}
	return fmt.Errorf("tier/s3: %w: %w", tier.ErrUnavailable, err)
}

// describe is the store's error with its code and status: the texts of stores are often empty.
func describe(r minio.ErrorResponse) error {
	return fmt.Errorf("the store answers %s (%d): %w", r.Code, r.StatusCode, r)
}

func missing(k tier.Key) error { return fmt.Errorf("tier/s3: object %v: %w", k, tier.ErrNotFound) }

func isPending(k tier.Key) error {
	return fmt.Errorf("tier/s3: object %v: another call is storing it: %w", k, tier.ErrPending)
}
