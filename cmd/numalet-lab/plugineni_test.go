package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/numalet/numalet/deviceplugin/eni"
)

// Flags take precedence over the file. What they leave out comes from the file.
func TestENIConfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "eni.yaml")
	if err := os.WriteFile(file, []byte(`
interfaces: [{resource: example.com/rdma, rdma: true}]
nodeIPs: [192.0.2.1]
move: runtime
metadata: {url: "http://192.0.2.2/"}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]eni.Config{
		"--config " + file: {Interfaces: []eni.Rule{{Resource: "example.com/rdma", RDMA: true}},
			NodeIPs: []string{"192.0.2.1"}, Move: eni.ByRuntime,
			Metadata: eni.Metadata{URL: "http://192.0.2.2/"}},
		"--config " + file + " --move network --driver ena,igb --node-ip 192.0.2.3": {
			Interfaces: []eni.Rule{
				{Resource: "example.com/eni", Drivers: []string{"ena", "igb"}},
				{Resource: "example.com/rdma", RDMA: true}},
			NodeIPs: []string{"192.0.2.1", "192.0.2.3"}, Move: eni.ByNetwork,
			Metadata: eni.Metadata{URL: "http://192.0.2.2/"}},
		"--dra --name eth1": {Interfaces: []eni.Rule{
			{Resource: "example.com/eni", Names: []string{"eth1"}}}},
		"--count a.b/c=metadata:ips --count a.b/d=exec:echo=1 --metadata-url http://x/": {
			Counts: []eni.Count{{Resource: "a.b/c", Metadata: "ips"},
				{Resource: "a.b/d", Command: "echo=1"}},
			Move: eni.ByNetwork, Metadata: eni.Metadata{URL: "http://x/"}},
	} {
		f := &eniFlags{}
		cmd := newPluginENICommand()
		cmd.ResetFlags()
		f.add(cmd.Flags())
		if err := cmd.ParseFlags(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		got, err := f.config(cmd.Flags())
		if err != nil {
			t.Fatal(err)
		}
		got.Places = eni.Places{}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: want (-), got (+)\n%s", args, diff)
		}
	}
}

func TestENIMistakes(t *testing.T) {
	for args, want := range map[string]string{
		"":                              "nothing is to be offered: give rules for interfaces",
		"--count a.b/c":                 `--count "a.b/c": write NAME=SOURCE, where SOURCE is`,
		"--count a.b/c=file:/x --dir /": "a.b/c: it is counted and has another rule",
		"--name eth1 --dir /none":       "/none: there is no such directory: start the kubelet",
		"--name eth1 --node-ip node":    `node address "node": write an IP address`,
		"--name eth1 --dra-driver a.b":  "--dra-driver has a meaning only with --dra",
		"--name eth1 --dra":             "--dra needs the API server: give --kubeconfig",
	} {
		if strings.HasPrefix(want, "a.b/c") {
			args += " --count a.b/c=file:/y"
		}
		cmd := newPluginENICommand()
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		cmd.SetArgs(strings.Fields(args))
		cmd.SetOut(io.Discard)
		err := cmd.ExecuteContext(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
}

// The driver is named after the first resource, and containers get interfaces by the runtime.
func TestENIDriverName(t *testing.T) {
	for args, want := range map[string]string{
		"": "rdma.example.com", "--dra-driver other.example.com": "other.example.com",
	} {
		f := &eniFlags{}
		cmd := newPluginENICommand()
		cmd.ResetFlags()
		f.add(cmd.Flags())
		if err := cmd.ParseFlags(strings.Fields("--dra " + args)); err != nil {
			t.Fatal(err)
		}
		got := f.driverName(eni.Config{Interfaces: []eni.Rule{{Resource: "Example.com/rdma"}}})
		if got != want {
			t.Errorf("%q: %s, want %s", args, got, want)
		}
	}
}

// The documentation page names every flag, and its example file can be read.
func TestENIPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/eni-plugin.md")
	if err != nil {
		t.Fatal(err)
	}
	newPluginENICommand().Flags().VisitAll(func(f *pflag.Flag) {
		if !strings.Contains(string(page), "`--"+f.Name) {
			t.Errorf("docs/eni-plugin.md does not name --%s", f.Name)
		}
	})
	_, text, _ := strings.Cut(string(page), "```yaml\n")
	text, _, _ = strings.Cut(text, "```")
	file := filepath.Join(t.TempDir(), "eni.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if cfg, err := eni.ReadConfig(file); err != nil || len(cfg.Interfaces) != 2 {
		t.Errorf("the page's file: %+v, %v", cfg, err)
	}
}
