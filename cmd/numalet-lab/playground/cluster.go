package playground

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/controlplane"
)

// nodeName is the name of the agent's node in a cluster.
const nodeName = "numalet"

// cluster is a control plane with the playground's agent as its node.
type cluster struct {
	*controlplane.Cluster
	kubectl string
	// workloads is the folder of the objects that are applied at the start.
	workloads string
	// certificate, key and kubeconfig are the node's files.
	certificate, key, kubeconfig string
}

// startCluster starts a control plane if the options name one.
func (p *Playground) startCluster(ctx context.Context) error {
	if p.opts.Cluster == "" {
		return nil
	}
	if !p.opts.JSON {
		_, err := fmt.Fprintln(p.opts.Out, "starting etcd, the API server, the controller manager "+
			"and the scheduler: half a minute on two cores")
		if err != nil {
			return err
		}
	}
	dir := filepath.Join(p.dir, "k")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	plane, err := controlplane.Start(ctx, controlplane.Config{
		Binaries: p.opts.Cluster, Dir: dir,
	})
	if err != nil {
		return err
	}
	p.stops = append(p.stops, func() error {
		plane.Stop()
		return nil
	})
	p.cluster = &cluster{
		Cluster: plane, kubectl: filepath.Join(p.opts.Cluster, "kubectl"),
		workloads: filepath.Join(p.dir, "workloads"), certificate: filepath.Join(dir, "node.crt"),
		key: filepath.Join(dir, "node.key"), kubeconfig: filepath.Join(dir, "node.conf"),
	}
	if err := plane.Kubeconfig(p.cluster.kubeconfig, "system:node:"+nodeName,
		"system:nodes"); err != nil {
		return err
	}
	return plane.NodeCertificate(p.cluster.certificate, p.cluster.key, nodeName)
}

// settings adds the agent's settings as a node of the cluster.
func (c *cluster) settings(into map[string]any) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	maps.Copy(into, controlplane.NodeSettings(port, c.certificate, c.key, c.CAFile()))
	into["address"] = "127.0.0.1"
	// No DNS server answers at this address. A real cluster has one, and its pods get the address.
	into["clusterDNS"], into["clusterDomain"] = []string{"10.96.0.10"}, "cluster.local"
	return nil
}

// measure has kubectl top work, if metrics-server is there. Without it the rest works.
func (c *cluster) measure(ctx context.Context, binaries string, log io.Writer) {
	if _, err := os.Stat(filepath.Join(binaries, "metrics-server")); err != nil {
		return
	}
	if err := c.AddMetrics(ctx); err != nil && ctx.Err() == nil {
		fmt.Fprintln(log, "kubectl top does not work:", err)
	}
}

// apply applies the workloads with kubectl, as a user would.
func (c *cluster) apply(ctx context.Context) error {
	if names, err := filepath.Glob(filepath.Join(c.workloads, "*")); err != nil || len(names) == 0 {
		return err // start without workloads
	}
	cmd := exec.CommandContext(ctx, c.kubectl, "--kubeconfig="+c.AdminKubeconfig(),
		"--cache-dir="+filepath.Join(filepath.Dir(c.kubeconfig), "kubectl"), // not the user's cache
		"apply", "--filename="+c.workloads)
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("kubectl apply: %w: %s", err, out)
	}
	return nil
}

// publishes reports whether the driver of claims has told the cluster of a device.
func (c *cluster) publishes(ctx context.Context, driver string) bool {
	client, err := c.Client()
	if err != nil {
		return false
	}
	list, err := client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{
		FieldSelector: resourcev1.ResourceSliceSelectorDriver + "=" + driver})
	return err == nil && slices.ContainsFunc(list.Items,
		func(s resourcev1.ResourceSlice) bool { return len(s.Spec.Devices) > 0 })
}

// placed reports whether there are pods and all pending ones have a node.
func (c *cluster) placed(ctx context.Context) bool {
	client, err := c.Client()
	if err != nil {
		return false
	}
	pods, err := client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
	if err != nil {
		return false
	}
	for _, pod := range pods.Items {
		if pod.Spec.NodeName == "" && pod.Status.Phase == v1.PodPending {
			return false
		}
	}
	return len(pods.Items) > 0
}

// clear deletes the objects that create pods, and so the pods.
func (c *cluster) clear(ctx context.Context) error {
	client, err := c.Client()
	if err != nil {
		return err
	}
	options := metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}
	const here = metav1.NamespaceDefault
	for what, remove := range map[string]func(context.Context, metav1.DeleteOptions,
		metav1.ListOptions) error{
		"deployments": client.AppsV1().Deployments(here).DeleteCollection,
		"daemon sets": client.AppsV1().DaemonSets(here).DeleteCollection,
		"jobs":        client.BatchV1().Jobs(here).DeleteCollection,
	} {
		if err := remove(ctx, options, metav1.ListOptions{}); err != nil {
			return fmt.Errorf("delete the %s: %w", what, err)
		}
	}
	return nil
}
