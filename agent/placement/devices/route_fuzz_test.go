package devices

import (
	"strings"
	"testing"
)

// FuzzQuestion: whatever is sent to cordon a device, it names one, or what is wrong is told in a
// line.
func FuzzQuestion(f *testing.F) {
	for _, text := range []string{
		`{"resource": "x.io/gpu", "id": "gpu-0", "reason": "hot"}`, `resource: x.io/gpu`, `[]`, `{`, ``,
		"resource: a\nresource: b\nid: c", `{"resource": "x.io/gpu", "id": "a", "ID": "b"}`,
		`{"resource": 1, "id": null}`, "id: &a [*a]",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		q, err := read(strings.NewReader(text))
		switch {
		case err != nil && strings.ContainsAny(err.Error(), "\n\r\x1b"):
			t.Errorf("%q: %q", text, err)
		case err == nil && (q.ID == "" || q.Resource == ""):
			t.Errorf("%q names %+v", text, q)
		}
	})
}
