package crisim

import (
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestShell: a shell on a terminal says that nothing is real, echoes what is typed, and ends with exit or
// Ctrl-D; one that reads a pipe says only what its commands print.
func TestShell(t *testing.T) {
	c := insideOf(&container{config: &runtimeapi.ContainerConfig{
		Envs: []*runtimeapi.KeyValue{{Key: "A", Value: []byte("b")}}}})
	for _, test := range []struct {
		input string
		tty   bool
		code  int
		want  []string
	}{
		{"env\necho x y; false\n", false, 1, []string{"A=b\nx y\n"}},
		{"exit 3\necho unheard\n", false, 3, []string{""}},
		{"nothing\necho goes on", false, 0, []string{"goes on\n"}},
		{"enx\x7fv\rexit 4\r", true, 4, []string{"container main is simulated", "this shell knows cat, echo, env", "A=b\n", "x\b \b"}},
		{"false\r\x04", true, 1, []string{"/ # "}},
	} {
		var out, errs strings.Builder
		p := process{ctx: t.Context(), inside: c, stdin: strings.NewReader(test.input), stdout: &out, stderr: &errs}
		if code := p.shell("main", test.tty); code != test.code {
			t.Errorf("%q: exit code %d", test.input, code)
		}
		for _, part := range test.want {
			if !strings.Contains(out.String(), part) || !test.tty && out.String() != part {
				t.Errorf("%q: it prints %q, want %q", test.input, out.String(), part)
			}
		}
	}
}
