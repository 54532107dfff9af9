package cri

import (
	"errors"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/numalet/numalet/internal/podtest"
)

// slowly expands one character after the other, as the documentation describes it.
func slowly(text string, lookup func(string) (string, bool)) (out string, missing []string) {
	for i := 0; i < len(text); i++ {
		end := -1
		if strings.HasPrefix(text[i:], "$(") {
			end = strings.IndexByte(text[i:], ')')
		}
		switch {
		case strings.HasPrefix(text[i:], "$$"):
			out += "$"
			i++
		case end > 0:
			name := text[i+2 : i+end]
			value, known := lookup(name)
			if !known {
				value, missing = text[i:i+end+1], append(missing, name)
			}
			out += value
			i += end
		default:
			out += text[i : i+1]
		}
	}
	return out, missing
}

// FuzzExpand compares expand with slowly, and checks the bound.
func FuzzExpand(f *testing.F) {
	for _, text := range []string{"$(A)", "$$(A)", "$(A$(B)$(", "$", "a)$(C)$$$", "$()$(A))"} {
		f.Add(text, uint16(100))
	}
	known := map[string]string{
		"": "", "A": strings.Repeat("x", 10), "AA": strings.Repeat("x", 20),
	}
	lookup := func(name string) (string, bool) { value, ok := known[name]; return value, ok }
	f.Fuzz(func(t *testing.T, text string, most uint16) {
		want, absent := slowly(text, lookup)
		got, missing, err := scope{known, int(most)}.expand(text)
		switch {
		case len(want) > int(most):
			if !errors.Is(err, errNoRoom) {
				t.Errorf("%q: %d bytes of %d, error %v", text, len(got), most, err)
			}
		case err != nil || got != want || !slices.Equal(missing, absent):
			t.Errorf("%q: %q %q %v, want %q %q", text, got, missing, err, want, absent)
		}
	})
}

// FuzzField: every field path yields a value or an error of one line.
func FuzzField(f *testing.F) {
	for _, path := range []string{
		"metadata.labels['a']", "metadata.annotations['']", "metadata.labels['", "status.podIPs",
		"metadata.labels['a']['b']", "spec", "limits.cpu", "requests.hugepages-", "limits.", "",
	} {
		f.Add(path, "1m")
	}
	f.Fuzz(func(t *testing.T, path, divisor string) {
		pod := testPod()
		pod.Labels = map[string]string{"a": "b\nc"}
		c := podtest.Container("c cpu=..1024 memory=..1")
		_, err := Facts{}.Of(pod).Field(&v1.ObjectFieldSelector{FieldPath: path})
		if err != nil && strings.ContainsAny(err.Error(), "\n\r\x1b") {
			t.Errorf("%q: %q", path, err)
		}
		by, err := resource.ParseQuantity(divisor)
		if err != nil {
			return
		}
		text, err := Facts{}.Resource(pod, &c, &v1.ResourceFieldSelector{Resource: path, Divisor: by})
		if err != nil && strings.ContainsAny(err.Error(), "\n\r\x1b") || strings.HasPrefix(text, "-") {
			t.Errorf("%q by %s: %q %q", path, divisor, text, err)
		}
	})
}
