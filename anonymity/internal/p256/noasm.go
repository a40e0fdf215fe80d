//go:build (!amd64 && !arm64 && !ppc64le && !s390x) || purego

package p256

// assembled says whether nistec is assembly here, as its own files do.
const assembled = false
