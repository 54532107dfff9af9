package handover

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/allocation/allocationtest"
	"github.com/numalet/numalet/cri"
)

// FuzzAnnotated reads what a container's annotation says: an error, or something that can be said
// again in the same way.
func FuzzAnnotated(f *testing.F) {
	text, err := Describe("main", allocationtest.Pod("a").Containers["main"])
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add(`{"cpus":"0-3","devices":[{"resource":"r","ids":["a"],"nodes":["0"],"answer":""}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		said := func(text string) (map[string]allocation.Container, error) {
			return Annotated(cri.Pod{Containers: []cri.Container{
				{Name: "main", Annotations: map[string]string{Annotation: text}},
			}})
		}
		first, err := said(text)
		if err != nil || first["main"].IsEmpty() {
			return
		}
		again, err := Describe("main", first["main"])
		if err != nil {
			t.Fatal(err)
		}
		second, err := said(again)
		if err != nil {
			t.Fatalf("what was described cannot be read: %v", err)
		}
		if diff := cmp.Diff(first, second, allocationtest.Same); diff != "" {
			t.Fatalf("described and read again (-want +got):\n%s", diff)
		}
	})
}
