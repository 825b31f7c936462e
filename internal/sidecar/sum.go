package sidecar

import "hash/crc32"

const (
	countSize  = 4
	sampleSize = 64
	sampleHead = 4 << 10
	maxSamples = 64 // behind the head, without the last one
)

// PayloadSum returns the checksum (CRC-32C) of a payload without its count, the first 4
// bytes. If full is false, the checksum covers only samples: the first 4 KiB, or the first
// front bytes if these are more, then 64 bytes each at equal distances, 64 times at most, and
// the last 64.
//
// The section Payload checksum of docs/format.md explains what samples find and what they
// miss.
// See docs/decisions.md, "Checksums cover samples of large objects".
func PayloadSum(payload []byte, front int, full bool) (sum uint32) {
	n := len(payload)
	step := sampleStep(n)
	head := min(max(sampleHead, front), n)
	if full {
		head = n
	}
	sum = crc32.Checksum(payload[min(countSize, n):head], castagnoli)
	for at := (head + step - 1) / step * step; at < n; at += step {
		sum = crc32.Update(sum, castagnoli, payload[at:min(at+sampleSize, n)])
	}
	if head < n {
		sum = crc32.Update(sum, castagnoli, payload[max(head, n-sampleSize):])
	}
	return sum
}

// sampleStep returns the distance of the samples of a payload of n bytes: a multiple of the page
// size, so that a page that was lost or zeroed is found up to 256 KiB.
func sampleStep(n int) int {
	return max(1, (n+maxSamples*pageSize-1)/(maxSamples*pageSize)) * pageSize
}
