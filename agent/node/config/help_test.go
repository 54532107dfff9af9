package config

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/pflag"
)

// The help lists every flag once, ours first, and mentions the deprecation once.
func TestHelp(t *testing.T) {
	fs := pflag.NewFlagSet("numalet", pflag.ContinueOnError)
	help := AddFlags(fs).Help(100)
	fs.VisitAll(func(flag *pflag.Flag) {
		n := strings.Count(help, "\n      --"+flag.Name+" ") +
			strings.Count(help, "\n  -"+flag.Shorthand+", --"+flag.Name+" ")
		if n != 1 {
			t.Errorf("--%s is there %d times", flag.Name, n)
		}
	})
	if strings.Contains(help, "DEPRECATED") {
		t.Error("flags carry notes of their own")
	}
	if n := strings.Count(help, "kubelet-config-file/"); n != 1 {
		t.Errorf("the note is there %d times", n)
	}
	order := []string{
		"--topology-from", "--root-dir", "kubelet-config-file/", "--read-only-port", "--max-pods",
		"--cpu-manager-policy ", "--logging-format", "--experimental-mounter-path",
	}
	from := 0
	for _, part := range order {
		at := strings.Index(help[from:], strings.TrimPrefix(part, "-"))
		if at < 0 {
			t.Fatalf("%q is not behind the one before", part)
		}
		from += at
	}
	for line := range strings.Lines(help) {
		words := strings.TrimSpace(line)
		if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > 100 &&
			strings.Contains(words, " ") {
			t.Errorf("wider than 100 columns: %s", line)
		}
	}
}

// The flags themselves stay unchanged: using one still prints its deprecation.
func TestHelpChangesNothing(t *testing.T) {
	fs := pflag.NewFlagSet("numalet", pflag.ContinueOnError)
	flags := AddFlags(fs)
	flags.Help(80)
	var said strings.Builder
	fs.SetOutput(&said)
	if err := fs.Parse([]string{"--max-pods=5"}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(said.String(), "--max-pods has been deprecated") {
		t.Errorf("said %q", said.String())
	}
}
