// Package s3 keeps objects in a bucket of any store that speaks S3: Amazon's, MinIO, Ceph, Garage, a gateway
// over a folder.
//
// [Open] makes a [Level], which is a [tier.Level], by [Options]. Each object of the level is one object of the bucket, under
// the prefix, its space and its name: a head with the whole description and checksums, and then the bytes.
// docs/format.md has both. So one GET brings description and bytes, and no store has to keep metadata that
// would not fit: S3 takes 2 KiB of it, a note alone may have 4.
//
// # The store
//
// The level evicts nothing. Objects expire by the bucket's own lifecycle: give the prefix a rule that expires
// objects some days after they were made, and one that ends multipart uploads which were left unfinished. A
// store that is full, or a quota of it, is tier.ErrFull.
//
// The level needs GetObject, PutObject, DeleteObject, AbortMultipartUpload, and ListBucket, without which S3
// answers AccessDenied about an object that is not there.
//
// Put asks the store to keep what it has (If-None-Match: *). A store that ignores the condition overwrites an
// object by its equal; one that refuses it (NotImplemented) is asked first what it has, from then on.
//
// # Failures
//
// Every round trip has a time limit, and one that fails by the store's 5xx answers or by a broken connection
// is repeated at most twice, after a random pause, while the level's budget lasts: a failure takes a token,
// and ten answers bring one back. After Options.Failures calls that failed in a row the store is down: all
// calls fail with tier.ErrUnavailable at once, while one goroutine asks every Options.Retry, until the store
// answers. A call may end after its context by no more than the time limit.
//
// A kill of the client in the midst of a Put leaves an object whole, or not there; of a large one it may leave
// parts, which are no object.
//
// What begins as an object of this level and isn't what was put is tier.ErrCorrupt and a miss. It is read
// twice, since it may be the way that changed it, and removed only if both reads had the same wrong bytes.
// Another program's object in an object's place is a miss and counted as corrupt, and stays: Put answers
// fs.ErrExist. List leaves both out.
//
// A store is not trusted with the memory of the process: what it announces is checked against what it was
// asked for. An object has at most 512 MiB. Memory for one is made by Into, which can refuse it, or within
// Options.MaxBytesInFlight.
//
// See docs/decisions.md, "S3 is spoken by minio-go".
// See docs/decisions.md, "An object in S3 has its head in front of its bytes".
package s3
