package cluster_test

import (
	"encoding/json"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// TestControlPlane: the servers have the pinned versions, and a node has the rights of nodes and no
// others.
func TestControlPlane(t *testing.T) {
	c := rig.Start(t)
	var versions struct{ ClientVersion, ServerVersion version.Info }
	if err := json.Unmarshal([]byte(c.MustRun("version", "-o", "json")), &versions); err != nil {
		t.Fatal(err)
	}
	if v := versions.ServerVersion; !strings.HasPrefix(v.GitVersion, "v1.") || v.Major != "1" ||
		v.GitVersion != versions.ClientVersion.GitVersion ||
		!strings.HasPrefix(v.GitVersion, "v1."+v.Minor+".") {
		t.Errorf("versions %+v", versions)
	}

	n := c.Join(harness.New(t), "numalet")
	node := connect(t, n.Kubeconfig)
	ctx, all := t.Context(), metav1.ListOptions{}
	_, err := node.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("a node that asks for itself gets %v, want that it does not exist", err)
	}
	if _, err := node.CoreV1().Secrets(c.Namespace).List(ctx, all); !apierrors.IsForbidden(err) {
		t.Errorf("a node that asks for all secrets gets %v, want that it may not", err)
	}
	bootstrap := connect(t, n.Bootstrap)
	if _, err := bootstrap.CoreV1().Pods(c.Namespace).List(ctx, all); !apierrors.IsForbidden(err) {
		t.Errorf("who has the bootstrap token and asks for pods gets %v, want that it may not", err)
	}
	out, err := c.Run("auth", "can-i", "create", "certificatesigningrequests",
		"--as=system:bootstrap:x", "--as-group=system:bootstrappers:numalet")
	if strings.TrimSpace(out) != "yes" {
		t.Errorf("may a bootstrapper ask for a certificate? %s %v", out, err)
	}
}

func connect(t *testing.T, kubeconfig string) kubernetes.Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
