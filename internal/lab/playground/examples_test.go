package playground

import (
	"io/fs"
	"regexp"
	"testing"
)

// The pods to begin with ask for what the playground's plugins offer.
func TestExamplesAskForWhatThereIs(t *testing.T) {
	for _, test := range []struct {
		Options
		offered []string
	}{
		{Options{}, []string{"example.com/gpu", "example.com/nic"}},
		{Options{Cluster: "bin"}, []string{"example.com/gpu", "example.com/nic"}},
		{Options{Runtime: Containerd}, []string{"example.com/gpu"}},
		{Options{Cluster: "bin", Runtime: Containerd}, []string{"example.com/gpu"}},
		{Options{GPU: "dgxh100"}, []string{"nvidia.com/gpu"}},
		{Options{Cluster: "bin", GPU: "dgxh100"}, []string{"nvidia.com/gpu"}},
	} {
		examples := test.examples()
		names, err := fs.Glob(examples, "*.yaml")
		if err != nil || len(names) == 0 {
			t.Fatalf("%v: %d examples", err, len(names))
		}
		asked := map[string]bool{}
		for _, name := range names {
			text, err := fs.ReadFile(examples, name)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range regexp.MustCompile(`[\w.]+/(gpu|nic)`).FindAllString(string(text), -1) {
				asked[m] = true
			}
		}
		for _, resource := range test.offered {
			delete(asked, resource)
		}
		if len(asked) > 0 {
			t.Errorf("%+v: the examples ask for %v, offered are %q", test.Options, asked, test.offered)
		}
	}
}
