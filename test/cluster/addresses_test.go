package cluster_test

import (
	"fmt"
	"net"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// TestTwoFamilies: a node with addresses of two families, IPv6 first, reports both, and its pods
// have addresses in that order; the API server accepts both statuses.
func TestTwoFamilies(t *testing.T) {
	if conn, err := net.Listen("tcp", "[::1]:0"); err != nil {
		t.Skip("this host has no IPv6")
	} else {
		_ = conn.Close()
	}
	c := rig.Start(t)
	agent := harness.New(t)
	n := c.Join(agent, "two-families")
	agent.Args = append(agent.Args, "--node-ip=::1,127.0.0.1")
	n.Start()
	wantAddresses(t, c, n.Name, "InternalIP ::1", "InternalIP 127.0.0.1", "Hostname "+n.Name)
	c.Apply(strings.Replace(bound(n.Name, "hosts", ""), "tolerations",
		"hostNetwork: true, tolerations", 1))
	p := await(t, c, c.Namespace, "hosts", runs)
	if got := fmt.Sprint(p.Status.HostIPs, p.Status.PodIPs); got !=
		"[{::1} {127.0.0.1}] [{::1} {127.0.0.1}]" {
		t.Errorf("it has %s", got)
	}
}

// TestAddressesOfTheCloud: with an external cloud provider the node has only its name, which is
// enough for pods in the host's network, until the provider's controller writes the addresses.
// Those stay, and pods get them.
func TestAddressesOfTheCloud(t *testing.T) {
	c := rig.Start(t)
	agent := harness.New(t)
	n := c.Join(agent, "of-the-cloud")
	agent.Args = append(agent.Args, "--cloud-provider=external")
	n.Start()
	wantAddresses(t, c, n.Name, "Hostname "+n.Name)
	harness.Eventually(t, "the controller writes the addresses", func() error {
		node, err := c.Client.CoreV1().Nodes().Get(t.Context(), n.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		node.Status.Addresses = []v1.NodeAddress{
			{Type: v1.NodeHostName, Address: n.Name},
			{Type: v1.NodeExternalIP, Address: "203.0.113.7"},
			{Type: v1.NodeInternalIP, Address: "10.20.30.40"},
			{Type: v1.NodeInternalIP, Address: "fd00::40"},
		}
		_, err = c.Client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
		return err
	})
	c.Apply(bound(n.Name, "told", ""))
	await(t, c, c.Namespace, "told", func(p *v1.Pod) bool {
		return runs(p) && fmt.Sprint(p.Status.HostIPs) == "[{10.20.30.40} {fd00::40}]"
	})
	n.Kill()
	n.Start() // it writes a status once more
	c.MustRun("wait", "--for=condition=Ready", "node/"+n.Name, "--timeout=1m")
	wantAddresses(t, c, n.Name, "Hostname "+n.Name, "ExternalIP 203.0.113.7",
		"InternalIP 10.20.30.40", "InternalIP fd00::40")
}

func wantAddresses(t *testing.T, c rig.Cluster, name string, want ...string) {
	t.Helper()
	harness.Eventually(t, "the node has its addresses", func() error {
		node, err := c.Client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		var got []string
		for _, a := range node.Status.Addresses {
			got = append(got, fmt.Sprint(a.Type, " ", a.Address))
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("it has %q, want %q", got, want)
		}
		return nil
	})
}
