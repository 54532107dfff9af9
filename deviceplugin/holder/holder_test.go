package holder_test

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/numalet/numalet/deviceplugin/holder"
)

// received returns the holder as a plugin finds it.
func received(t *testing.T, h holder.Holder) (holder.Holder, bool) {
	t.Helper()
	md, _ := metadata.FromOutgoingContext(h.Context(t.Context()))
	for key, values := range md {
		for _, v := range values {
			if len(v) > 1024 || strings.ContainsFunc(v, func(r rune) bool {
				return r < ' ' || r > '~'
			}) {
				t.Errorf("a call cannot have the header %s: %q", key, v)
			}
		}
	}
	return holder.From(metadata.NewIncomingContext(context.Background(), md))
}

func TestHolder(t *testing.T) {
	whole := holder.Holder{Namespace: "shop", Pod: "web-0", UID: "6f1e-77", Container: "main"}
	odd := whole
	odd.UID = "\u00e4\nb"
	long := whole
	long.UID = strings.Repeat("a", 1025)
	rest := whole
	rest.UID = ""
	for name, tt := range map[string]struct {
		given, want holder.Holder
		known       bool
	}{
		"whole": {whole, whole, true}, "nobody": {},
		"a UID that no header can have": {odd, rest, true}, "a long UID": {long, rest, true},
	} {
		if got, known := received(t, tt.given); got != tt.want || known != tt.known {
			t.Errorf("%s: %+v, %t", name, got, known)
		}
	}
	if _, known := holder.From(context.Background()); known {
		t.Error("a call without metadata is for somebody")
	}
}
