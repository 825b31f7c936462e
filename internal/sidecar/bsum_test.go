package sidecar

func benchSum(p []byte) uint32 { return PayloadSum(layoutVersion, p, 200, false) }
