package encoder

import (
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/ringcache/ringcache/encoder/safetensors"
	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/disk"
)

// The keys of a Tree in the metadata of a file.
const (
	treePrefix = "ringcache."
	treeSum    = treePrefix + "crc32c" // of the bytes, 8 hexadecimal digits
	// treeCheck is the CRC-32C, as 8 hexadecimal digits, of the whole header as a Tree writes
	// it with eight zeros here.
	treeCheck  = treePrefix + "head_crc32c"
	treeParent = treePrefix + "parent"
	treeTenant = treePrefix + "tenant"
	treeCost   = treePrefix + "cost_ns"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// metadataOf returns the metadata of an object, with zeros for the check.
func metadataOf(o tier.Object, sum uint32) map[string]string {
	m := map[string]string{treeSum: hex8(sum), treeCheck: hex8(0)}
	if o.Parent != "" {
		m[treeParent] = o.Parent
	}
	if o.Tenant != "" {
		m[treeTenant] = o.Tenant
	}
	if o.Cost != 0 {
		m[treeCost] = strconv.FormatInt(int64(o.Cost), 10)
	}
	return m
}

func treeChecksum(metadata map[string]string, tensors []safetensors.Tensor) (string, error) {
	head, err := safetensors.AppendHeader(nil, metadata, tensors)
	return hex8(crc32.Checksum(head, castagnoli)), err
}

func hex8(n uint32) string { return fmt.Sprintf("%08x", n) }

// readMetadata sets what a Tree put into a file's metadata. Metadata of others are nobody's business.
func readMetadata(h *disk.Head, metadata map[string]string, tensors []safetensors.Tensor) error {
	own := make(map[string]string)
	for key, value := range metadata {
		if strings.HasPrefix(key, treePrefix) {
			own[key] = value
		}
	}
	if len(own) == 0 {
		return nil
	}
	sum, err := strconv.ParseUint(own[treeSum], 16, 32)
	if err != nil {
		return fmt.Errorf("the checksum is %.20q", own[treeSum])
	}
	var cost int64
	if text, ok := own[treeCost]; ok {
		if cost, err = strconv.ParseInt(text, 10, 64); err != nil {
			return fmt.Errorf("the cost is %.20q", text)
		}
	}
	// Clones, since the texts are parts of the whole header, which would stay as long as the object.
	h.Object.Parent, h.Object.Tenant = strings.Clone(own[treeParent]), strings.Clone(own[treeTenant])
	h.Object.Cost = time.Duration(cost)
	if err := h.Object.Validate(); err != nil {
		return fmt.Errorf("%v", err) // not an fs.ErrInvalid: the file is damaged
	}
	// What was read is written again: only equal texts have the check that is in the file.
	again := metadataOf(h.Object, uint32(sum))
	check, err := treeChecksum(again, tensors)
	if err != nil {
		return err
	}
	again[treeCheck] = check
	if !maps.Equal(own, again) {
		return errors.New("the description does not have its checksum")
	}
	h.Sum, h.HasSum = uint32(sum), true
	return nil
}
