package explain

import (
	"strings"
	"testing"
)

// What has a rejected pod tried again depends on where it comes from.
func TestRejectedOfASource(t *testing.T) {
	for source, want := range map[string]string{
		"api": "delete it, and create it again", "file": "touch its manifest", "http": "have its URL", "": "touch its manifest",
	} {
		r := Record{Verdict: Verdict{Outcome: "Reject"}, Subject: Subject{Source: source}}
		if text := r.Text(); !strings.Contains(text, "A rejected pod is not looked at again: "+want) {
			t.Errorf("of source %q:\n%s", source, text)
		}
	}
}

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

// Memory of which all is kept back says by what.
func TestMemoryKeptBack(t *testing.T) {
	s := Supply{Resource: "memory"}
	const text = "memory: 0 of 0; systemReserved, kubeReserved and evictionHard (memory.available) keep all of it back"
	if got := s.String(); got != text {
		t.Errorf("%q, want %q", got, text)
	}
	if got := s.Brief(); got != "memory 0 of 0 (evictionHard)" {
		t.Error(got)
	}
	s.Resource = "hugepages-2Mi" // a node may have none
	if got := s.String(); got != "hugepages-2Mi: 0 of 0" {
		t.Error(got)
	}
}
