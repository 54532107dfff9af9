package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/keyutil"

	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/child"
)

const (
	// startTimeout bounds the time until pods can be created: half a minute on an idle machine.
	startTimeout = 5 * time.Minute
	// pollEvery is the interval at which conditions outside our process are polled.
	pollEvery = 50 * time.Millisecond
)

// Cluster is a running control plane. Its creator must stop it.
type Cluster struct {
	access
	config  Config
	ports   ports
	tunnel  *tunnel
	proxy   *tunnel // metrics-server's; nil: it does not run
	servers []*child.Server
}

// Start starts the servers and returns when pods can be created. ctx covers the start only.
func Start(ctx context.Context, config Config) (c *Cluster, err error) {
	if err := config.Check(); err != nil {
		return nil, err
	}
	c = &Cluster{config: config}
	defer func() {
		if err != nil {
			c.Stop()
			c = nil
		}
	}()
	if err := c.prepare(); err != nil {
		return c, fmt.Errorf("prepare the control plane in %s: %w", config.Dir, err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := c.launch(config.etcd(), config.apiServer(c.port)); err != nil {
		return c, err
	}
	if err := c.AwaitReady(ctx); err != nil {
		return c, err
	}
	if err := c.launch(config.controllerManager(), config.scheduler()); err != nil {
		return c, err
	}
	return c, c.furnish(ctx)
}

// prepare makes the files and sockets that the servers need.
func (c *Cluster) prepare() (err error) {
	if c.authority, err = newAuthority(); err != nil {
		return err
	}
	c.token = newBootstrapToken()
	if c.port, err = c.ports.hold(); err != nil {
		return err
	}
	if c.tunnel, err = openTunnel("unix", c.config.path(tunnelSocket)); err != nil {
		return err
	}
	if err := c.writeCertificates(); err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(c.config.path(egressFile), []byte(c.config.egress()), 0o600),
		os.WriteFile(c.config.path(auditPolicyFile), []byte(auditPolicy), 0o600),
		c.Kubeconfig(c.config.path(adminFile), "kubernetes-admin", "system:masters"),
		c.Kubeconfig(c.config.path(managerFile), "system:kube-controller-manager"),
		c.Kubeconfig(c.config.path(schedulerFile), "system:kube-scheduler"))
}

func (c *Cluster) writeCertificates() error {
	accounts, err := newKey()
	if err != nil {
		return err
	}
	accountsKey, err := keyutil.MarshalPrivateKeyToPEM(accounts)
	if err != nil {
		return err
	}
	server, serverErr := c.authority.server("kube-apiserver", "127.0.0.1", "localhost",
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "10.96.0.1")
	client, clientErr := c.authority.client(kubeletClient)
	front, frontErr := c.authority.client(frontClient)
	if err := errors.Join(serverErr, clientErr, frontErr); err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(c.config.path(accountsKeyFile), accountsKey, 0o600),
		c.authority.own.write(c.config.path(authorityFile), c.config.path(authorityKeyFile)),
		server.writeAs(c.config.path(serverFile)), client.writeAs(c.config.path(kubeletFile)),
		front.writeAs(c.config.path(frontFile)))
}

func (c *Cluster) launch(servers ...*child.Server) error {
	for _, s := range servers {
		if err := s.Start(); err != nil {
			return err
		}
		c.servers = append(c.servers, s)
	}
	return nil
}

// AwaitReady waits until the API server reports that it is ready.
func (c *Cluster) AwaitReady(ctx context.Context) error {
	return c.awaitPath(ctx, "the API server is ready", "/readyz")
}

// awaitPath waits until the API server answers GET path.
func (c *Cluster) awaitPath(ctx context.Context, what, path string) error {
	client, err := c.Client()
	if err != nil {
		return err
	}
	return c.poll(ctx, what, func() error {
		return client.Discovery().RESTClient().Get().AbsPath(path).Do(ctx).Error()
	})
}

// poll waits until check succeeds. It fails if a server exits meanwhile.
func (c *Cluster) poll(ctx context.Context, what string, check func() error) error {
	for {
		err := check()
		if err == nil {
			return nil
		}
		for _, s := range c.servers {
			if died := s.Died(); died != nil {
				return died
			}
		}
		if !await.For(ctx, pollEvery) {
			return fmt.Errorf("waited in vain until %s: %w; logs are in %s", what, err,
				c.config.Dir)
		}
	}
}

// Stop ends the servers, the last started first, and keeps their files.
func (c *Cluster) Stop() {
	for _, s := range slices.Backward(c.servers) {
		s.Stop()
	}
	c.servers = nil
	for _, t := range []**tunnel{&c.tunnel, &c.proxy} {
		if *t != nil {
			(*t).stop()
			*t = nil
		}
	}
	c.ports.release()
}

// Server returns the server of that name, for tests that kill it, one at a time: etcd,
// kube-apiserver, kube-controller-manager or kube-scheduler.
func (c *Cluster) Server(name string) (*child.Server, error) {
	for _, s := range c.servers {
		if s.Name() == name {
			return s, nil
		}
	}
	return nil, fmt.Errorf("the control plane has no server %q", name)
}

// Data returns etcd's directory, which may be copied and restored while etcd does not run.
func (c *Cluster) Data() string { return c.config.path(etcdData) }

// AuditLog returns a file with a line of JSON for each request, an audit.k8s.io/v1 Event. It exists
// only with Config.Audit.
func (c *Cluster) AuditLog() string { return c.config.path(auditFile) }

// Admin returns the configuration of a client with all rights.
func (c *Cluster) Admin() (*rest.Config, error) {
	return clientcmd.BuildConfigFromFlags("", c.AdminKubeconfig())
}

// Client returns a client with all rights.
func (c *Cluster) Client() (kubernetes.Interface, error) { return clientOf(c.AdminKubeconfig()) }

func clientOf(kubeconfig string) (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1 // no client-side limit, which would delay the creation of many pods
	return kubernetes.NewForConfig(config)
}
