package cli

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestBashWithoutPackage: the script completes in a bash that has no other package, also words with = and :.
func TestBashWithoutPackage(t *testing.T) {
	root := &cobra.Command{Use: "demo", Run: func(*cobra.Command, []string) {}}
	root.AddCommand(&cobra.Command{Use: "show", Run: func(*cobra.Command, []string) {}})
	Complete(root, nil)
	var script bytes.Buffer
	root.SetOut(&script)
	root.SetArgs([]string{"completion", "bash"})
	if err := root.Execute(); err != nil || strings.Contains(script.String(), "\n    "+libraryWords) {
		t.Fatalf("%v\n%s", err, script.String())
	}
	dir := t.TempDir()
	asked := filepath.Join(dir, "asked")
	for name, text := range map[string]string{
		"completion": script.String(),
		"demo": "#!/bin/sh\nprintf '<%s>' \"$@\" >" + asked + "\n" +
			"echo fixture:playground; echo fixture:paris; echo :4\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ line, words, asks, offers string }{
		{"demo show fixture:p", "demo show fixture : p", "<__complete><show><fixture:p>", "playground paris"},
		{"demo show --from=fixture:", "demo show --from = fixture : ''", "<__complete><show><--from=fixture:>", "playground paris"},
		{"demo show ", "demo show ''", "<__complete><show><>", "fixture:playground fixture:paris"},
		{"demo  fix", "demo fix", "<__complete><fix>", "fixture:playground fixture:paris"},
	} {
		text := "source " + filepath.Join(dir, "completion") + "; COMP_WORDS=(" + c.words + ")\n" +
			"COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMP_LINE='" + c.line + "' COMP_TYPE=9\n" +
			"COMP_POINT=${#COMP_LINE}; compopt() { :; }\n" +
			"__start_demo; echo \"${COMPREPLY[*]}\""
		bash := exec.CommandContext(t.Context(), "bash", "--norc", "--noprofile", "-c", text)
		bash.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "TERM=dumb"}
		out, err := bash.CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %v\n%s", c.line, err, out)
		}
		got, err := os.ReadFile(asked)
		if err != nil || string(got) != c.asks || strings.TrimSpace(string(out)) != c.offers {
			t.Errorf("%q asked %s and offered %q, %v; want %s and %q", c.line, got, out, err, c.asks, c.offers)
		}
	}
}
