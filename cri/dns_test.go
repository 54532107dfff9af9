package cri

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/internal/podtest"
)

func resolvConf(c *runtimeapi.DNSConfig) string {
	return strings.Join(c.Servers, " ") + " | " + strings.Join(c.Searches, " ") + " | " +
		strings.Join(c.Options, " ")
}

func TestDNS(t *testing.T) {
	host, err := ParseResolvConf(strings.NewReader(`# made by hand
; old
domain ignored.example
search example.org corp.example
nameserver 192.0.2.1
nameserver 192.0.2.2
nameserver
options ndots:1 timeout:2
sortlist 1.2.3.4
`))
	if err != nil {
		t.Fatal(err)
	}
	cluster := DNS{Host: host, Servers: []string{"10.96.0.10"}, Domain: "cluster.local"}
	own := &v1.PodDNSConfig{
		Nameservers: []string{"192.0.2.7", "192.0.2.8", "192.0.2.9"},
		Searches:    []string{"mine.example", "example.org"},
		Options:     []v1.PodDNSConfigOption{{Name: "ndots", Value: ptr.To("3")}, {Name: "rotate"}},
	}
	for name, test := range map[string]struct {
		dns  DNS
		spec v1.PodSpec
		want string
	}{
		"cluster first": {cluster, v1.PodSpec{DNSPolicy: v1.DNSClusterFirst},
			"10.96.0.10 | ns.svc.cluster.local svc.cluster.local cluster.local example.org " +
				"corp.example | ndots:5"},
		"cluster first in the host's network is the host's": {cluster,
			v1.PodSpec{DNSPolicy: v1.DNSClusterFirst, HostNetwork: true},
			"192.0.2.1 192.0.2.2 | example.org corp.example | ndots:1 timeout:2"},
		"without a cluster DNS it is the host's": {DNS{Host: host},
			v1.PodSpec{DNSPolicy: v1.DNSClusterFirst},
			"192.0.2.1 192.0.2.2 | example.org corp.example | ndots:1 timeout:2"},
		"only its own": {cluster, v1.PodSpec{DNSPolicy: v1.DNSNone, DNSConfig: own},
			"192.0.2.7 192.0.2.8 192.0.2.9 | mine.example example.org | ndots:3 rotate"},
		"its own on top, three servers at most": {cluster,
			v1.PodSpec{DNSPolicy: v1.DNSDefault, DNSConfig: own},
			"192.0.2.1 192.0.2.2 192.0.2.7 | example.org corp.example mine.example | timeout:2 " +
				"ndots:3 rotate"},
	} {
		config, _ := test.dns.Config(podtest.New("ns/p", podtest.Spec(test.spec)))
		if got := resolvConf(config); got != test.want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, test.want)
		}
	}
	config, _ := DNS{Host: host}.Config(&v1.Pod{})
	got := resolvConf(config)
	if !strings.HasPrefix(got, "192.0.2.1 192.0.2.2 |") {
		t.Errorf("the host's configuration was changed by earlier pods: %s", got)
	}
}

// If a pod's resolver configuration differs from its spec, an event says so in the kubelet's words.
func TestDNSProblems(t *testing.T) {
	numbered := func(n int, text string) (out []string) {
		for i := range n {
			out = append(out, text+string(rune('a'+i/26))+string(rune('a'+i%26)))
		}
		return out
	}
	host := &runtimeapi.DNSConfig{Servers: []string{"192.0.2.1"}, Searches: []string{"corp.example"}}
	cluster := DNS{Host: host, Servers: []string{"10.96.0.10"}, Domain: "cluster.local"}
	const missing = `kubelet does not have ClusterDNS IP configured and cannot create Pod using ` +
		`"ClusterFirst" policy. Falling back to "Default" policy.`
	long := strings.Repeat("x", 63)
	for name, test := range map[string]struct {
		dns      DNS
		spec     v1.PodSpec
		want     string
		problems []DNSProblem
	}{
		"within the limits": {cluster, v1.PodSpec{DNSPolicy: v1.DNSNone, DNSConfig: &v1.PodDNSConfig{
			Nameservers: []string{"1.1.1.1", "2.2.2.2", "1.1.1.1", "3.3.3.3"},
			Searches:    []string{"a", "b", "a"}}},
			"1.1.1.1 2.2.2.2 3.3.3.3 | a b | ", nil},
		"too many servers": {cluster, v1.PodSpec{DNSPolicy: v1.DNSNone, DNSConfig: &v1.PodDNSConfig{
			Nameservers: []string{"1.1.1.1", "2.2.2.2", "3.3.3.3", "4.4.4.4"}}},
			"1.1.1.1 2.2.2.2 3.3.3.3 |  | ",
			[]DNSProblem{{"DNSConfigForming", "Nameserver limits were exceeded, some nameservers " +
				"have been omitted, the applied nameserver line is: 1.1.1.1 2.2.2.2 3.3.3.3", ""}}},
		"too many domains": {cluster, v1.PodSpec{DNSPolicy: v1.DNSNone, DNSConfig: &v1.PodDNSConfig{
			Searches: numbered(33, "s")}}, " | " + strings.Join(numbered(32, "s"), " ") + " | ",
			[]DNSProblem{{"DNSConfigForming", "Search Line limits were exceeded, some search paths " +
				"have been omitted, the applied search line is: " +
				strings.Join(numbered(32, "s"), " "), ""}}},
		"too long domains": {cluster, v1.PodSpec{DNSPolicy: v1.DNSNone, DNSConfig: &v1.PodDNSConfig{
			Searches: numbered(32, long)}}, " | " + strings.Join(numbered(31, long), " ") + " | ",
			[]DNSProblem{{"DNSConfigForming", "Search Line limits were exceeded, some search paths " +
				"have been omitted, the applied search line is: " +
				strings.Join(numbered(31, long), " "), ""}}},
		"no cluster DNS": {DNS{Host: host}, v1.PodSpec{DNSPolicy: v1.DNSClusterFirst},
			"192.0.2.1 | corp.example | ",
			[]DNSProblem{{"MissingClusterDNS", `pod: "p_ns(u)". ` + missing, missing}}},
		"no cluster DNS, with the host's network": {DNS{Host: host},
			v1.PodSpec{DNSPolicy: v1.DNSClusterFirst, HostNetwork: true},
			"192.0.2.1 | corp.example | ", nil},
		"the cluster's with the host's network": {cluster,
			v1.PodSpec{DNSPolicy: v1.DNSClusterFirstWithHostNet, HostNetwork: true},
			"10.96.0.10 | ns.svc.cluster.local svc.cluster.local cluster.local corp.example | " +
				"ndots:5", nil},
		"no domain": {DNS{Host: host, Servers: cluster.Servers},
			v1.PodSpec{DNSPolicy: v1.DNSClusterFirst}, "10.96.0.10 | corp.example | ndots:5", nil},
		"no host's": {DNS{}, v1.PodSpec{DNSPolicy: v1.DNSDefault}, "127.0.0.1 | . | ", nil},
		"no host's, with IPv6": {DNS{IPv6: true}, v1.PodSpec{DNSPolicy: v1.DNSDefault},
			"::1 | . | ", nil},
		"an option without a value": {cluster, v1.PodSpec{DNSPolicy: v1.DNSNone,
			DNSConfig: &v1.PodDNSConfig{Options: []v1.PodDNSConfigOption{
				{Name: "edns0"}, {Name: "x", Value: ptr.To("")}}}}, " |  | edns0 x", nil},
	} {
		config, problems := test.dns.Config(podtest.New("ns/p", podtest.UID("u"), podtest.Spec(test.spec)))
		if got := resolvConf(config); got != test.want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, test.want)
		}
		if !slices.Equal(problems, test.problems) {
			t.Errorf("%s:\ngot  %q\nwant %q", name, problems, test.problems)
		}
	}
}

// A domain means the same with and without its final dot, and lines may be long.
func TestParseResolvConf(t *testing.T) {
	long := strings.Repeat("#", 1<<17)
	got, err := ParseResolvConf(strings.NewReader(long + "\nsearch a.example. . b\nnameserver ::1"))
	if err != nil || resolvConf(got) != "::1 | a.example b | " {
		t.Errorf("got %v, %v", got, err)
	}
	endless := strings.NewReader(strings.Repeat("nameserver 192.0.2.1\n", maxResolvConf/21+1))
	if _, err := ParseResolvConf(endless); err == nil {
		t.Error("a file without an end was read")
	}
}

func TestHostProblem(t *testing.T) {
	many, long := strings.Repeat("a ", 30), strings.Repeat(strings.Repeat("x", 250)+" ", 9)
	for _, test := range []struct{ searches, domain, want string }{
		{"a b", "cluster.local", ""},
		{many, "", ""},
		{many + "b c d", "", "consisting of more than 32 domains!"},
		{many, "cluster.local", "consisting of more than 29 domains!"},
		{long, "", "which length is more than allowed 2048 chars!"},
	} {
		d := DNS{Domain: test.domain,
			Host: &runtimeapi.DNSConfig{Searches: strings.Fields(test.searches)}}
		want := ""
		if test.want != "" {
			want = "Resolv.conf file '/r' contains search line " + test.want
		}
		if got := d.HostProblem("/r"); got != want {
			t.Errorf("%d domains: %q, want %q", len(d.Host.Searches), got, want)
		}
	}
	if got := (DNS{}).HostProblem("/r"); got != "" {
		t.Errorf("without a file: %q", got)
	}
}

// FuzzResolvConf: everything parsed stands in the file, and pods get no more than the limits.
func FuzzResolvConf(f *testing.F) {
	f.Add("nameserver 10.0.0.1\nsearch a b. .\noptions ndots:5\n")
	f.Add("domain x\nsearch\nnameserver\n#nameserver 1\n;search y")
	f.Add("nameserver 1\nnameserver 2\nnameserver 3\nnameserver 4\nsearch " + strings.Repeat("a.b ", 50))
	f.Fuzz(func(t *testing.T, text string) {
		host, err := ParseResolvConf(strings.NewReader(text))
		if err != nil {
			return
		}
		for _, words := range [][]string{host.Servers, host.Searches, host.Options} {
			for _, word := range words {
				if !strings.Contains(text, word) || len(strings.Fields(word)) > 1 {
					t.Errorf("%q is read of %q", word, text)
				}
			}
		}
		got, _ := DNS{Host: host}.Config(&v1.Pod{Spec: v1.PodSpec{DNSPolicy: v1.DNSDefault}})
		if len(got.Servers) > maxNameservers || len(got.Searches) > maxSearchDomains ||
			len(strings.Join(got.Searches, " ")) > maxSearchChars {
			t.Errorf("a pod gets %v of %q", got, text)
		}
	})
}
