package source

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/numalet/numalet/internal/complaint"
)

func TestLedger(t *testing.T) {
	var reported []string
	l := ledger{report: func(p complaint.Problem) {
		reported = append(reported, strings.TrimSuffix(p.Name+": "+p.Message, ": "))
	}}
	bad := func(name, message string, content byte) finding {
		return finding{complaint.Problem{Source: FileSource, Name: name, Message: message}, [32]byte{content}}
	}
	for i, step := range []struct {
		findings []finding
		want     []string
	}{
		{nil, nil},
		{[]finding{bad("a", "x", 0), bad("b", "y", 0)}, []string{"a: x", "b: y"}},
		{[]finding{bad("b", "y", 0), bad("a", "x", 0)}, nil},
		{[]finding{bad("a", "x", 1), bad("b", "z", 0)}, []string{"a: x", "b: z"}},
		{[]finding{bad("a", "worse", 0), bad("a", "x", 1), bad("b", "z", 0)}, []string{"a: worse"}},
		{[]finding{bad("a", "x", 1)}, []string{"a: x", "b"}},
		{nil, []string{"a"}},
		{nil, nil},
	} {
		reported = nil
		l.now(step.findings)
		if diff := cmp.Diff(step.want, reported); diff != "" {
			t.Errorf("step %d: told (-want +got):\n%s", i, diff)
		}
	}
}

// TestFileProblemsEnd: every problem ends with its cause.
func TestFileProblemsEnd(t *testing.T) {
	dir := t.TempDir()
	f := follow(t, dir)
	f.wait()
	f.put("a", manifestOf("same"))
	f.wait("same")
	f.put("clash", manifestOf("same"))
	f.put("ignored", strings.Replace(manifestOf("ignored"), "spec:", "status: {}\nnone: 1\nspec:", 1))
	f.put("invalid", "kind: [")
	f.must(os.Symlink("loop", filepath.Join(dir, "loop")))
	for name, text := range map[string]string{
		"clash": "is in", "ignored": "none", "invalid": "is not YAML", "loop": "symbolic links",
	} {
		f.waitProblem(name, text)
	}
	f.must(os.Remove(filepath.Join(dir, "clash")))
	f.must(os.Remove(filepath.Join(dir, "loop")))
	f.put("ignored", manifestOf("ignored"))
	f.put("invalid", manifestOf("valid"))
	f.wait("ignored", "same", "valid")
	for _, name := range []string{"clash", "ignored", "invalid", "loop"} {
		f.waitOver(name)
	}
}
