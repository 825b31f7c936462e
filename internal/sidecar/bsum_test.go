package sidecar

func benchSum(p []byte) uint32 { return PayloadSum(p, 200, false) }
