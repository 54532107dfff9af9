package explain

import "testing"

// A text names the resource and the container of which they are known.
func TestBlocking(t *testing.T) {
	for want, b := range map[string]Blocking{
		"CPUs: none":                          {Resource: cpu, Why: "none"},
		"exclusive CPUs of container a: none": {Resource: cpu, Container: "a", Why: "none"},
		"example.com/gpu: none":               {Resource: "example.com/gpu", Why: "none"},
		"container a: it waits":               {Container: "a", Why: "it waits"},
		"it waits":                            {Why: "it waits"},
	} {
		if got := b.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
