package sidecar

import "hash/crc32"

const (
	countSize  = 4
	sampleSize = 64
	// Since layout 3: the head, and further samples that are at least this far apart.
	sampleHead = 4 << 10
	maxSamples = 64
	// In layouts 1 and 2 both are this.
	earlierStep = 64 << 10
)

// PayloadSum returns the checksum (CRC-32C) of a payload without its count, the first 4
// bytes. If full is false, the checksum covers only samples: the first 4 KiB, or the first
// front bytes if these are more, then 64 bytes each at equal distances, 64 times at most, and
// the last 64. In layouts 1 and 2 the head has 64 KiB and so has the distance.
//
// The section Payload checksum of docs/format.md explains what samples find and what they
// miss.
// See docs/decisions.md, "Checksums cover samples of large objects".
func PayloadSum(layout int, payload []byte, front int, full bool) (sum uint32) {
	n := len(payload)
	least, step := sampling(layout, n)
	head := min(max(least, front), n)
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

// sampling returns the bytes of the head, if the description ends in it, and the distance of
// the samples behind it, for a payload of n bytes.
func sampling(layout, n int) (head, step int) {
	if layout < 3 {
		return earlierStep, earlierStep
	}
	// Multiples of the page size: a page that was lost or zeroed is found up to 256 KiB.
	return sampleHead, max(1, (n+maxSamples*pageSize-1)/(maxSamples*pageSize)) * pageSize
}
