package cri

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"
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
		pod := &v1.Pod{Spec: test.spec}
		pod.Namespace = "ns"
		config, _ := test.dns.Config(pod)
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
