package firewall

import (
	"bytes"
	"context"
	"log"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2"
)

// inNamespace runs this test again in a new network namespace, and returns true there.
func inNamespace(t *testing.T) bool {
	t.Helper()
	if os.Getenv("NUMALET_IN_NAMESPACE") != "" {
		return true
	}
	for _, program := range []string{"iptables", "ip6tables"} {
		if _, err := exec.LookPath(program); err != nil || os.Geteuid() != 0 {
			if os.Getenv("CI") == "true" {
				t.Fatalf("root and %s are wanted: %v", program, err)
			}
			t.Skip("left out: this needs root and " + program)
		}
	}
	again := exec.CommandContext(t.Context(), "unshare", "--net", os.Args[0], "-test.run=^"+t.Name()+"$",
		"-test.v")
	again.Env = append(os.Environ(), "NUMALET_IN_NAMESPACE=1")
	out, err := again.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

// rules returns the rules of a table, without its policies.
func rules(t *testing.T, program, table string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program, "-t", table, "-S").Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(line, "-P ") })
}

// The chains are the kubelet's, exist once however often they are made, and come back after a
// flush.
func TestChains(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	ctx, cancel := context.WithCancel(t.Context())
	f := New()
	f.every = 50 * time.Millisecond
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	filter := []string{"-N KUBE-FIREWALL", "-N KUBE-KUBELET-CANARY",
		"-A INPUT -j KUBE-FIREWALL", "-A OUTPUT -j KUBE-FIREWALL",
		`-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "block incoming ` +
			`localnet connections" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP`}
	mangle := []string{"-N KUBE-IPTABLES-HINT", "-N KUBE-KUBELET-CANARY"}
	want := map[[2]string][]string{
		{"iptables", "filter"}: filter, {"iptables", "mangle"}: mangle,
		{"iptables", "nat"}:     {"-N KUBE-KUBELET-CANARY"},
		{"ip6tables", "filter"}: {"-N KUBE-KUBELET-CANARY"}, {"ip6tables", "mangle"}: mangle,
		{"ip6tables", "nat"}: {"-N KUBE-KUBELET-CANARY"},
	}
	await := func(what string) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			differs := ""
			for at, lines := range want {
				if got := rules(t, at[0], at[1]); !slices.Equal(got, lines) {
					differs = strings.Join(append(at[:], got...), "\n")
				}
			}
			if differs == "" {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%s there is in %s", what, differs)
			}
		}
	}
	await("at first")
	for _, of := range find(ctx) { // as a restarted agent does
		if err := of.make(); err != nil {
			t.Error(err)
		}
	}
	await("when they are made again")
	for _, args := range [][]string{{"iptables", "-t", "filter", "-F"}, {"iptables", "-t", "filter", "-X"},
		{"ip6tables", "-t", "mangle", "-X"}} {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	await("after somebody flushed them")
}

// A failure is logged once, and again when it ends.
func TestSaidOnce(t *testing.T) {
	var said bytes.Buffer
	klog.LogToStderr(false)
	klog.SetOutput(&said)
	defer klog.LogToStderr(true)
	defer klog.SetOutput(log.Writer())
	f := New()
	ctx := klog.NewContext(context.Background(), klog.Background())
	for _, err := range []error{os.ErrPermission, os.ErrPermission, nil, nil} {
		f.keep(ctx, []family{{name: "IPv4"}}, func(family) error { return err })
	}
	klog.Flush()
	if n := strings.Count(said.String(), "makeIPTablesUtilChains"); n != 2 ||
		!strings.Contains(said.String(), "IPv4: permission denied") {
		t.Errorf("%d lines: %s", n, said.String())
	}
}
