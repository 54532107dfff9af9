package cluster_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	rbac "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// TestCertificatesRotate: while kubectl exec and logs -f run, the node gets another client
// certificate and its server another one. Streams stay, new ones open, the old client certificate
// is not used any more, and an expired certificate gives no access. An agent that starts again uses
// its own certificate, whatever became of the one in the kubeconfig.
func TestCertificatesRotate(t *testing.T) {
	c := rig.Start(t)
	agent := harness.New(t)
	n := c.Join(agent, "rotates")
	agent.Settings["rotateCertificates"] = true
	pki := filepath.Join(agent.Dir, "pki")
	agent.Args = append(agent.Args, "--cert-dir="+pki)
	withoutApproval(t, c, n)
	user := "system:node:" + n.Name
	due := c.Until(time.Now().Add(time.Hour))
	if err := due.Kubeconfig(n.Kubeconfig, user, "system:nodes"); err != nil {
		t.Fatal(err)
	}
	n.Start()
	c.Apply(bound(n.Name, "web", ""))
	pod := await(t, c, c.Namespace, "web", runs)
	log := filepath.Join(agent.Dir, "logs",
		fmt.Sprintf("%s_web_%s", c.Namespace, pod.UID), "main", "0.log")
	exec := talk(t, c, "exec", "-i", "web", "--", "cat")
	logs := talk(t, c, "logs", "-f", "web")
	logs.next("what the container says when it starts")
	streams := func(when string) {
		t.Helper()
		exec.say(when)
		exec.hear(when)
		appendLog(t, log, when)
		logs.hear(when)
	}
	streams("at first")

	old := connections(t, c, n)
	if len(old) == 0 {
		t.Errorf("the agent has no connection to %s", c.URL())
	}
	approve(t, c, user)
	harness.Eventually(t, "the connections of the old certificate are gone", func() error {
		now := connections(t, c, n)
		for port := range old {
			if now[port] {
				return fmt.Errorf("of the ports %v there are %v", old, now)
			}
		}
		_, err := os.Stat(filepath.Join(pki, "kubelet-client-current.pem"))
		return err
	})
	c.Apply(bound(n.Name, "later", ""))
	await(t, c, c.Namespace, "later", runs)
	streams("with another client certificate")
	rotateServing(t, c, n)
	streams("with another certificate on the server")

	n.Kill()
	over := c.Until(time.Now().Add(-time.Minute))
	if err := over.Kubeconfig(n.Kubeconfig, user, "system:nodes"); err != nil {
		t.Fatal(err)
	}
	n.Start()
	c.Apply(bound(n.Name, "last", ""))
	await(t, c, c.Namespace, "last", runs)
}

// connections returns the ports from which the agent is connected to the API server.
func connections(t *testing.T, c rig.Cluster, n rig.Node) map[uint64]bool {
	t.Helper()
	at, err := url.Parse(c.URL())
	if err != nil {
		t.Fatal(err)
	}
	procs, err := procfs.NewDefaultFS()
	if err != nil {
		t.Fatal(err)
	}
	agent, err := procs.Proc(n.PID())
	if err != nil {
		t.Fatal(err)
	}
	open, err := agent.FileDescriptorTargets()
	if err != nil {
		t.Fatal(err)
	}
	all, err := procs.NetTCP() //nolint:staticcheck // netlink is for machines with many more
	if err != nil {
		t.Fatal(err)
	}
	out := map[uint64]bool{}
	for _, line := range all {
		if strconv.FormatUint(line.RemPort, 10) == at.Port() &&
			slices.Contains(open, fmt.Sprintf("socket:[%d]", line.Inode)) {
			out[line.LocalPort] = true
		}
	}
	return out
}

// withoutApproval stops the approval of nodes' requests for new certificates until the test ends.
func withoutApproval(t *testing.T, c rig.Cluster, n rig.Node) {
	t.Helper()
	const name = "numalet:approve-renewal"
	bindings := c.Client.RbacV1().ClusterRoleBindings()
	was, err := bindings.Get(t.Context(), name, metav1.GetOptions{})
	if err == nil {
		err = bindings.Delete(t.Context(), name, metav1.DeleteOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		again := &rbac.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef: was.RoleRef, Subjects: was.Subjects}
		_, err := bindings.Create(context.Background(), again, metav1.CreateOptions{})
		if err != nil {
			t.Error(err)
		}
	})
	harness.Eventually(t, "the controllers may not approve", func() error {
		// The answer no is an error of the command.
		out, _ := c.Run("auth", "can-i", "create", "certificatesigningrequests",
			"--subresource=selfnodeclient", "--as=system:node:"+n.Name, "--as-group=system:nodes")
		if out = strings.TrimSpace(out); out != "no" {
			return errors.New(out)
		}
		return nil
	})
}

// approve approves a user's request for a certificate once it exists.
func approve(t *testing.T, c rig.Cluster, user string) {
	t.Helper()
	harness.Eventually(t, "the request of "+user+" is there and approved", func() error {
		list, err := c.Client.CertificatesV1().CertificateSigningRequests().List(t.Context(),
			metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, r := range list.Items {
			if r.Spec.Username == user && len(r.Status.Conditions) == 0 {
				_, err := c.Run("certificate", "approve", r.Name)
				return err
			}
		}
		return fmt.Errorf("none of %d is of that user", len(list.Items))
	})
}

// rotateServing makes the node serve with an expired certificate, which accepts no new stream, and
// then with a good one. It does the reverse with a client of the node.
func rotateServing(t *testing.T, c rig.Cluster, n rig.Node) {
	t.Helper()
	over := c.Until(time.Now().Add(-time.Minute))
	file := filepath.Join(n.Dir, "ended")
	if err := over.Kubeconfig(file, "kubernetes-admin", "system:masters"); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		t.Fatal(err)
	}
	config.Host = fmt.Sprintf("https://127.0.0.1:%v", n.Settings["port"])
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Get(config.Host + "/pods")
	if err != nil {
		t.Fatal(err)
	}
	if resp.Body.Close(); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("a client with a certificate that has ended gets %s", resp.Status)
	}
	for _, step := range []struct {
		write func(certificate, key, node string) error
		want  string
	}{
		{over.NodeCertificate, "certificate has expired"},
		{c.NodeCertificate, ""},
	} {
		certificate, key := n.Settings["tlsCertFile"].(string), n.Settings["tlsPrivateKeyFile"].(string)
		if err := step.write(certificate, key, n.Name); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, "new streams with the other certificate end with "+step.want,
			func() error {
				_, err := c.Run("exec", "web", "--", "echo", "new")
				if (err == nil) == (step.want == "") &&
					(err == nil || strings.Contains(err.Error(), step.want)) {
					return nil
				}
				return fmt.Errorf("they end with %v", err)
			})
	}
}

// conversation is a kubectl that runs until the test ends.
type conversation struct {
	t     *testing.T
	in    io.WriteCloser
	lines chan string
}

func talk(t *testing.T, c rig.Cluster, args ...string) conversation {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := c.Kubectl(ctx, args...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	says := conversation{t, in, make(chan string, 100)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for text := bufio.NewScanner(out); text.Scan(); {
			says.lines <- text.Text()
		}
		close(says.lines)
		_ = cmd.Wait() // it was killed
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return says
}

func (c conversation) say(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		c.t.Fatal(err)
	}
}

// hear waits for a line, and fails if it is another one.
func (c conversation) hear(want string) {
	c.t.Helper()
	if line := c.next(want); line != want {
		c.t.Errorf("there is %q, want %q", line, want)
	}
}

// next waits for a line.
func (c conversation) next(what string) string {
	c.t.Helper()
	select {
	case line, open := <-c.lines:
		if !open {
			c.t.Fatalf("it ended before %q", what)
		}
		return line
	case <-time.After(harness.Patience):
		c.t.Fatalf("waited %v in vain for %q", harness.Patience, what)
		return ""
	}
}

// appendLog writes a line to a container's log as the runtime does.
func appendLog(t *testing.T, file, line string) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	now := time.Now().UTC().Format(time.RFC3339Nano)
	if _, err := fmt.Fprintf(f, "%s stdout F %s\n", now, line); err != nil {
		t.Fatal(err)
	}
}
