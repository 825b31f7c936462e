//go:build !amd64

package rope

const vectors = false

func (r Rotation) applyVectors([]byte, []byte, DType) bool { return false }
