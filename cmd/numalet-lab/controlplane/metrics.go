package controlplane

import (
	"context"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/internal/child"
)

// metricsServer is the name of the program, and of its user at the API server and at nodes.
const metricsServer = "metrics-server"

//go:embed metrics.yaml
var metricsObjects string

// AddMetrics starts metrics-server, which provides resource usage to kubectl top and autoscalers,
// and returns when it answers through the API server. It reaches nodes as the API server does.
func (c *Cluster) AddMetrics(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	port, err := c.ports.hold()
	if err != nil {
		return err
	}
	if c.proxy, err = openTunnel("tcp", "127.0.0.1:0"); err != nil {
		return err
	}
	if err := c.certifyMetrics(); err != nil {
		return fmt.Errorf("prepare metrics-server in %s: %w", c.config.Dir, err)
	}
	if err := c.registerMetrics(ctx, port); err != nil {
		return err
	}
	own, err := clientOf(c.config.path(metricsFile + ".conf"))
	if err != nil {
		return err
	}
	if err := c.poll(ctx, "metrics-server has its rights", func() error {
		_, err := own.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(
			ctx, "extension-apiserver-authentication", metav1.GetOptions{})
		return err
	}); err != nil {
		return err
	}
	if err := c.launch(c.config.metricsServer(port, c.proxy.listener.Addr().String())); err != nil {
		return err
	}
	return c.awaitPath(ctx, "metrics-server answers", "/apis/metrics.k8s.io/v1beta1/nodes")
}

// certifyMetrics writes metrics-server's serving certificate, and its kubeconfig.
func (c *Cluster) certifyMetrics() error {
	server, err := c.authority.server(metricsServer, metricsServer+".kube-system.svc")
	if err != nil {
		return err
	}
	return errors.Join(
		server.writeAs(c.config.path(metricsFile)),
		c.Kubeconfig(c.config.path(metricsFile+".conf"), metricsServer))
}

// metricsServer returns the program, which asks nodes through the proxy, and the API server, on loopback,
// without it.
func (c Config) metricsServer(port int, proxy string) *child.Server {
	kubeconfig := c.path(metricsFile + ".conf")
	out := c.process(metricsServer,
		"--kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig,
		"--authorization-kubeconfig="+kubeconfig,
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port), "--permit-port-sharing",
		"--tls-cert-file="+c.path(metricsFile+".crt"),
		"--tls-private-key-file="+c.path(metricsFile+".key"),
		"--kubelet-certificate-authority="+c.path(authorityFile),
		"--kubelet-preferred-address-types=InternalIP", "--kubelet-use-node-status-port",
		"--metric-resolution=10s", // the minimum
		"--kubelet-request-timeout=5s")
	out.Env = []string{"HTTPS_PROXY=http://" + proxy, "NO_PROXY="}
	return out
}

// registerMetrics creates the objects that register metrics-server with the API server and give it
// its rights.
func (c *Cluster) registerMetrics(ctx context.Context, port int) error {
	objects := strings.NewReplacer("$PORT", fmt.Sprint(port),
		"$CA", base64.StdEncoding.EncodeToString(c.authority.own.certificate)).Replace(metricsObjects)
	cmd := exec.CommandContext(ctx, c.config.program("kubectl"),
		"--kubeconfig="+c.AdminKubeconfig(), "--cache-dir="+c.config.path("kubectl"), // not the user's cache
		"apply", "--filename=-")
	cmd.Stdin = strings.NewReader(objects)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make the objects of metrics-server: %w: %s", err, out)
	}
	return nil
}
