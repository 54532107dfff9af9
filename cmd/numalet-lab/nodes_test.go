package main

import (
	"io"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestNodesMistakes checks that wrong flags are reported before anything runs.
func TestNodesMistakes(t *testing.T) {
	good := []string{"nodes", "--kubeconfig=/none", "--machine=fixture:laptop"}
	for want, args := range map[string][]string{
		"need --kubeconfig and --machine": {"nodes"},
		"write fixture:epyc-nps4=400":     append(good, "--machine=fixture:laptop=many"),
		"write RESOURCE=COUNT":            append(good, "--device=gpu"),
		"write KEY=VALUE:EFFECT":          append(good, "--taint=a=b:Never"),
		"--pace=0":                        append(good, "--pace=0"),
		"--requests=-1":                   append(good, "--requests=-1"),
		"--kubeconfig /none":              append(good, "--root-dir="+t.TempDir()),
	} {
		cmd := newCommand("numalet")
		cmd.SetArgs(args)
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v; want one with %q", args, err, want)
		}
	}
}

func TestParseTaint(t *testing.T) {
	for text, want := range map[string]v1.Taint{
		"hollow=yes:NoSchedule": {Key: "hollow", Value: "yes", Effect: v1.TaintEffectNoSchedule},
		"hollow:NoExecute":      {Key: "hollow", Effect: v1.TaintEffectNoExecute},
	} {
		if got, err := parseTaint(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "a", "a=b", ":NoSchedule", "a:noschedule"} {
		if got, err := parseTaint(text); err == nil {
			t.Errorf("%q is taken for %+v", text, got)
		}
	}
}
