// Package holder names the container that a call to a device plugin is for, in the call's metadata
// (headers). Plugins that do not read it see the usual calls.
package holder

import (
	"cmp"
	"context"
	"strings"

	"google.golang.org/grpc/metadata"
)

// Holder is the container that gets the devices, or for which the plugin is asked.
type Holder struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	UID       string `json:"uid"`
	Container string `json:"container"`
}

// The keys of the metadata.
const (
	namespaceKey = "numalet-pod-namespace"
	podKey       = "numalet-pod-name"
	uidKey       = "numalet-pod-uid"
	containerKey = "numalet-container-name"
)

// Context returns a context whose calls name the holder.
func (h Holder) Context(ctx context.Context) context.Context {
	var pairs []string
	for _, f := range []struct{ key, value string }{
		{namespaceKey, h.Namespace}, {podKey, h.Pod}, {uidKey, h.UID},
		{containerKey, h.Container},
	} {
		if sendable(f.value) {
			pairs = append(pairs, f.key, f.value)
		}
	}
	return metadata.AppendToOutgoingContext(ctx, pairs...)
}

// maxValue bounds a header in bytes. Names have at most 253.
const maxValue = 1024

// sendable reports whether a header can hold the value. Any other value would make the call fail,
// and a UID in a manifest may be any text.
func sendable(value string) bool {
	return value != "" && len(value) <= maxValue && !strings.ContainsFunc(value, func(r rune) bool {
		return r < ' ' || r > '~'
	})
}

// From returns the holder that a received call is for; false: its metadata does not say.
func From(ctx context.Context) (Holder, bool) {
	md, _ := metadata.FromIncomingContext(ctx) // nil has no values
	value := func(key string) string { return cmp.Or(md.Get(key)...) }
	h := Holder{value(namespaceKey), value(podKey), value(uidKey), value(containerKey)}
	return h, h != Holder{}
}
