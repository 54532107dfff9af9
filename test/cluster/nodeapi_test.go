package cluster_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// TestKubectl: kubectl's requests to a node through the API server.
func TestKubectl(t *testing.T) {
	c := rig.Start(t)
	agent := harness.New(t)
	n := c.Join(agent, "kubectl-node")
	agent.Start()
	c.Apply(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {
"nodeName": "` + n.Name + `", "automountServiceAccountToken": false,
"containers": [{"name": "main", "image": "sim.local/app"}]}}`)
	agent.AwaitPhase("web", v1.PodRunning)

	for _, tc := range []struct {
		args []string
		in   string
		want string
	}{
		{[]string{"exec", "web", "--", "echo", "hello"}, "", "hello\n"},
		{[]string{"exec", "-i", "web", "--", "cat"}, "typed\n", "typed\n"},
		{[]string{"logs", "web", "--tail=1"}, "", "started cpus="},
	} {
		out, err := c.RunWith(tc.in, tc.args...)
		if err != nil || !strings.HasPrefix(out, tc.want) {
			t.Errorf("kubectl %v: %v %q, want %q", tc.args, err, out, tc.want)
		}
	}
	if _, err := c.Run("exec", "web", "--", "sh", "-c", "exit 3"); err == nil ||
		!strings.Contains(err.Error(), "exit code 3") {
		t.Errorf("a command that fails: %v", err)
	}
	if _, err := c.Run("logs", "web", "--previous"); err == nil || !strings.Contains(err.Error(),
		`previous terminated container "main" in pod "web" not found`) {
		t.Errorf("the log of no container: %v", err)
	}
	if _, err := c.RunWith("", "attach", "-i", "web"); err != nil {
		t.Errorf("kubectl attach: %v", err)
	}
	forward(t, c)
	out := c.MustRun("get", "--raw", "/api/v1/nodes/"+n.Name+"/proxy/pods")
	if !strings.Contains(out, `"name":"web"`) {
		t.Errorf("the node's pods through the API server: %.300q", out)
	}
}

// forward sends a line through kubectl port-forward.
func forward(t *testing.T, c rig.Cluster) {
	t.Helper()
	port := harness.FreePort(t)
	ctx, cancel := context.WithCancel(t.Context())
	cmd := c.Kubectl(ctx, "port-forward", "pod/web", fmt.Sprintf("%d:80", port))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cancel()
		_ = cmd.Wait() // it was killed
	}()
	harness.Eventually(t, "a line comes back through the forwarded port", func() error {
		conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), time.Second)
		if err != nil {
			return err
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			return err
		}
		if _, err := io.WriteString(conn, "hello\n"); err != nil {
			return err
		}
		text := make([]byte, len("port 80\nhello\n"))
		if _, err := io.ReadFull(conn, text); err != nil || string(text) != "port 80\nhello\n" {
			return fmt.Errorf("%q: %w", text, err)
		}
		return nil
	})
}

// TestServingCertificate: a node with serverTLSBootstrap serves with the certificate that the
// cluster signs once somebody has approved it.
func TestServingCertificate(t *testing.T) {
	c := rig.Start(t)
	agent := harness.New(t)
	n := c.Join(agent, "signed-node")
	delete(agent.Settings, "tlsCertFile")
	delete(agent.Settings, "tlsPrivateKeyFile")
	agent.Settings["serverTLSBootstrap"] = true
	pki := filepath.Join(agent.Dir, "pki")
	agent.Args = append(agent.Args, "--cert-dir="+pki, "--node-ip=127.0.0.1")
	agent.Start()
	address := fmt.Sprintf("127.0.0.1:%v", agent.Settings["port"])
	if conn, err := tls.Dial("tcp", address, &tls.Config{
		InsecureSkipVerify: true, //nolint:gosec // there is none to verify
	}); err == nil {
		_ = conn.Close()
		t.Error("a certificate is served before one was signed")
	}
	harness.Eventually(t, "the request is there and approved", func() error {
		list, err := c.Client.CertificatesV1().CertificateSigningRequests().List(t.Context(),
			metav1.ListOptions{FieldSelector: "spec.signerName=kubernetes.io/kubelet-serving"})
		if err != nil {
			return err
		}
		for _, r := range list.Items {
			if r.Spec.Username == "system:node:"+n.Name {
				_, err := c.Run("certificate", "approve", r.Name)
				return err
			}
		}
		return fmt.Errorf("none of %d is the node's", len(list.Items))
	})
	harness.Eventually(t, "the signed certificate is served", func() error {
		conn, err := tls.Dial("tcp", address, &tls.Config{
			InsecureSkipVerify: true, //nolint:gosec // the test reads its subject
		})
		if err != nil {
			return err
		}
		defer conn.Close()
		cert := conn.ConnectionState().PeerCertificates[0]
		if cert.Subject.CommonName != "system:node:"+n.Name || cert.VerifyHostname("127.0.0.1") != nil {
			return fmt.Errorf("it is of %s for %v", cert.Subject, cert.IPAddresses)
		}
		return nil
	})
	if _, err := os.Stat(filepath.Join(pki, "kubelet-server-current.pem")); err != nil {
		t.Errorf("it is not kept: %v", err)
	}
}
