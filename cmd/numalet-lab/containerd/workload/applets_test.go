package workload

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestApplets: they do the usual, and say what is wrong with the usual exit codes.
func TestApplets(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"a": "one\n", ".b": "two\n", "run.sh": "echo \"$1\"; exit 4\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("FROM_TEST", "yes")
	for name, test := range map[string]struct {
		args []string
		in   string
		code int
		want string // with it what is printed begins, on either stream
	}{
		"cat a file":       {[]string{"cat", dir + "/a"}, "", 0, "one\n"},
		"cat the input":    {[]string{"cat"}, "in", 0, "in"},
		"cat what is away": {[]string{"cat", dir + "/none"}, "", 1, "cat: open " + dir},
		"ls":               {[]string{"ls", dir}, "", 0, "a\nrun.sh\n"},
		"ls -a":            {[]string{"ls", "-a", dir}, "", 0, ".b\na\n"},
		"ls -l":            {[]string{"ls", "-l", dir}, "", 0, "-rw-r--r--          4 "},
		"ls a file":        {[]string{"ls", dir + "/a"}, "", 0, "a\n"},
		"ls what is away":  {[]string{"ls", dir + "/none"}, "", 1, "ls: lstat "},
		"sh -c":            {[]string{"sh", "-c", "x=$FROM_TEST; if true; then echo $x; fi; exit 3"}, "", 3, "yes\n"},
		"sh reads":         {[]string{"sh"}, "echo a\nfalse\n", 1, "a\n"},
		"sh of a file":     {[]string{"sh", dir + "/run.sh", "-x"}, "", 4, "-x\n"},
		"sh, not a script": {[]string{"sh", "-c", "if"}, "", 2, "sh: "},
		"sh, no program":   {[]string{"sh", "-c", "nvidia-smi"}, "", 127, `"nvidia-smi": executable file not found`},
		"sleep":            {[]string{"sleep", "0.01"}, "", 0, ""},
		"sleep nonsense":   {[]string{"sleep", "long"}, "", 1, "sleep: "},
		"false":            {[]string{"false"}, "", 1, ""},
		"echo":             {[]string{"echo", "a", "b"}, "", 0, "a b\n"},
	} {
		var out strings.Builder
		code := applets[test.args[0]](streams{strings.NewReader(test.in), &out, &out}, test.args[1:])
		if code != test.code || !strings.HasPrefix(out.String(), test.want) {
			t.Errorf("%s: %d, %q; want %d, %q", name, code, out.String(), test.code, test.want)
		}
	}
	if _, is := Applet("/usr/bin/numalet", nil); is {
		t.Error("the program itself is taken for an applet")
	}
	if code, is := Applet("/bin/true", nil); !is || code != 0 {
		t.Error("/bin/true is no applet")
	}
	if !slices.Contains(Applets(), "ls") {
		t.Error("ls is not listed")
	}
}
