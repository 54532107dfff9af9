package preflight

import (
	"context"
	"errors"
	"io/fs"
	"os"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// most bounds the pods that are looked at.
const most = 5000

// cluster is reached with the node's own credentials; client is nil if they reach nothing.
type cluster struct{ client kubernetes.Interface }

// connect reads the kubeconfig, and says what is wrong with it.
func (l *looking) connect() (c cluster) {
	path := l.cfg.Cluster.Kubeconfig
	if path == "" {
		l.add(Versions, "API server", Note, "none, by the flags: the node stands alone")
		return c
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		l.missingKubeconfig(path)
		return c
	}
	rest, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		l.add(Versions, "API server", Blocks, "--kubeconfig %s: %v", path, err)
		return c
	}
	rest.Timeout = patience
	if c.client, err = kubernetes.NewForConfig(rest); err != nil {
		l.add(Versions, "API server", Blocks, "--kubeconfig %s: %v", path, err)
		c.client = nil
	}
	return c
}

// missingKubeconfig: with a bootstrap kubeconfig the agent makes the other one.
func (l *looking) missingKubeconfig(path string) {
	bootstrap := l.cfg.Cluster.BootstrapKubeconfig
	if _, err := os.Stat(bootstrap); bootstrap != "" && err == nil {
		l.add(Versions, "API server", Note, "%s is not there yet: the agent would ask for a certificate "+
			"with %s", path, bootstrap)
		return
	}
	l.add(Versions, "API server", Blocks, "--kubeconfig %s is not there, nor a --bootstrap-kubeconfig", path).
		Advice = "join the node first, as with kubeadm join"
}

// ofNode lists the node's pods.
func (c cluster) ofNode(ctx context.Context, node string) ([]*v1.Pod, error) {
	list, err := c.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String(), Limit: most})
	if err != nil {
		return nil, err
	}
	var out []*v1.Pod
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	return out, nil
}
